"""A relay from nothing but addresses, as a program of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from orbitmq.client.sync_producer import Producer
from orbitmq.outbox.outbox import Outbox
from orbitmq.outbox.relay import Relay
from orbitmq.outbox.table import DEFAULT_NAME
from orbitmq.user_database import engine_of, in_a_sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Engine

    from orbitmq.outbox.outbox import Backlog
    from orbitmq.outbox.relay_config import RelayOptions

GROUP = "ORBITMQ_OUTBOX"


def run_relay(
    url: str,
    name_servers: str | Iterable[str],
    *,
    table: str = DEFAULT_NAME,
    schema: str | None = None,
    group: str = GROUP,
    create_table: bool = False,
    **options: Unpack[RelayOptions],
) -> None:
    """Send what is in the outbox of a database until Ctrl-C or SIGTERM.

    ``url`` is SQLAlchemy's, as in ``postgresql+psycopg://user@host/shop``. Raises OrbitMQError for options that
    cannot be, and if the database or the table cannot be used to begin with.
    """
    engine = engine_of(url)
    outbox = Outbox(table, schema=schema)
    try:
        producer = Producer(name_servers, group=group)
        relay = Relay(engine, producer, outbox, **options)
        if create_table:
            with in_a_sentence(f"the outbox {table!r} cannot be made"):
                outbox.create_table(engine)
        _backlog(engine, outbox, table)
        with producer:
            relay.run()
    finally:
        engine.dispose()


def backlog_of(url: str, *, table: str = DEFAULT_NAME, schema: str | None = None) -> Backlog:
    """What waits in the outbox of a database. Raises OrbitMQError if it cannot be used."""
    engine = engine_of(url)
    try:
        return _backlog(engine, Outbox(table, schema=schema), table)
    finally:
        engine.dispose()


def _backlog(engine: Engine, outbox: Outbox, table: str) -> Backlog:
    with in_a_sentence(f"the outbox {table!r} cannot be used"), engine.connect() as connection:
        return outbox.backlog(connection)
