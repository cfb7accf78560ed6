"""Relay and backlog from a database URL, for the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from orbitmq.client.sync.producer import Producer
from orbitmq.database import engine_for_url, with_short_errors
from orbitmq.outbox.outbox import Outbox
from orbitmq.outbox.relay import Relay
from orbitmq.outbox.table import DEFAULT_NAME

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
    """Send the messages of a database's outbox until Ctrl-C or SIGTERM.

    ``url`` is SQLAlchemy's, as in ``postgresql+psycopg://user@host/shop``. Raises OrbitMQError for invalid
    options, and if the database or the table is unusable at the start.
    """
    engine = engine_for_url(url)
    outbox = Outbox(table, schema=schema)
    try:
        producer = Producer(name_servers, group=group)
        relay = Relay(engine, producer, outbox, **options)
        if create_table:
            with with_short_errors(f"the outbox {table!r} cannot be created"):
                outbox.create_table(engine)
        _backlog(engine, outbox, table)
        with producer:
            relay.run()
    finally:
        engine.dispose()


def backlog_of(url: str, *, table: str = DEFAULT_NAME, schema: str | None = None) -> Backlog:
    """The backlog of a database's outbox. Raises OrbitMQError if it is unusable."""
    engine = engine_for_url(url)
    try:
        return _backlog(engine, Outbox(table, schema=schema), table)
    finally:
        engine.dispose()


def _backlog(engine: Engine, outbox: Outbox, table: str) -> Backlog:
    with with_short_errors(f"the outbox {table!r} cannot be used"), engine.connect() as connection:
        return outbox.backlog(connection)
