"""Messages in a user's own transactions: there with the rest of the work, or not at all."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from orbitmq import InvalidMessageError, Message
from orbitmq.database import UnsupportedDatabaseError, check_supported
from orbitmq.outbox import OUTBOX_ID, Outbox, outbox_table
from orbitmq.outbox.rows import ClaimedMessage, row_of
from orbitmq.protocol.message.message_id import decode_unique_id
from support.client.user_databases import KINDS, databases, engine_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.client.user_databases import Databases

outbox = Outbox()
table = outbox.table


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Databases]:
    with databases(request.param) as made:
        yield made


@pytest.fixture
def engine(server: Databases, tmp_path: Path) -> Iterator[sa.Engine]:
    with engine_at(server.new(tmp_path)) as made:
        outbox.create_table(made)
        yield made


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sa.Engine]:
    """For what is the same in all of them, and needs a driver for asyncio."""
    with engine_at(f"sqlite:///{tmp_path / 'shop.db'}") as made:
        outbox.create_table(made)
        yield made


def bodies(engine: sa.Engine) -> list[bytes]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(table.c.body).order_by(table.c.id)))


def taken(engine: sa.Engine) -> list[ClaimedMessage]:
    with engine.connect() as connection:
        return [ClaimedMessage.of(row) for row in connection.execute(sa.select(table).order_by(table.c.id))]


def test_a_message_is_there_when_its_transaction_is_committed(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        outbox.add(connection, Message("orders", b"1"))
        assert bodies(engine) == []
    assert bodies(engine) == [b"1"]


def test_a_message_is_gone_with_its_transaction(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        outbox.add(connection, Message("orders", b"1"))
        connection.rollback()
    assert bodies(engine) == []


def test_sessions_take_messages_as_connections_do(engine: sa.Engine) -> None:
    make = sessionmaker(engine)
    with make.begin() as session:
        outbox.add(session, Message("orders", b"1"))
    with make() as session:
        outbox.add(session, Message("orders", b"not committed"))
    shared: scoped_session[Session] = scoped_session(make)
    outbox.add(shared, Message("orders", b"2"))
    shared.commit()
    shared.remove()
    assert bodies(engine) == [b"1", b"2"]


def test_many_are_added_in_one_go_and_in_order(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        ids = outbox.add_all(connection, (Message("orders", b"%d" % number) for number in range(100)))
        assert outbox.add_all(connection, []) == []
    assert bodies(engine) == [b"%d" % number for number in range(100)]
    assert [one.message_id for one in taken(engine)] == ids
    assert len(set(ids)) == 100


def test_what_is_sent_is_what_was_added(engine: sa.Engine) -> None:
    message = Message(
        "orders",
        bytes(range(256)),
        tags="paid",
        keys=["42", "43"],
        properties={"amount": "9", "Währung": "€\x00\x01'\""},
        flag=-5,
        delay_level=3,
        sharding_key="customer-7",
        wait_store_ok=False,
    )
    before = dict(message.properties)
    with engine.begin() as connection:
        message_id = outbox.add(connection, message)
    (row,) = taken(engine)
    assert (row.message.topic, row.message.body, row.message.flag) == ("orders", bytes(range(256)), -5)
    assert row.message.properties == {**before, "UNIQ_KEY": message_id, OUTBOX_ID: "1"}
    assert message.properties == before


def test_a_message_that_was_sent_before_is_another_one_here(engine: sa.Engine) -> None:
    message = Message("orders", b"1")
    message.properties["UNIQ_KEY"] = "0" * 32
    with engine.begin() as connection:
        ids = {outbox.add(connection, message) for _ in range(3)}
    assert len(ids) == 3
    assert "0" * 32 not in ids


def test_ids_are_such_as_producers_make() -> None:
    unique = decode_unique_id(row_of(Message("orders", b"1"), 100)["message_id"])
    assert len(unique.address) == 4


def _one_id(_: int) -> str:
    return str(row_of(Message("orders", b"1"), 100)["message_id"])


def test_a_copy_of_the_process_makes_other_ids() -> None:
    mine = {_one_id(0) for _ in range(20)}
    with multiprocessing.get_context("fork").Pool(2) as pool:
        theirs = set(pool.map(_one_id, range(20), chunksize=1))
    assert len(theirs) == 20
    assert not mine & theirs


def test_properties_are_text_that_people_can_read(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        outbox.add(connection, Message("orders", b"1", tags="bezahlt", properties={"Stadt": "Köln"}))
        text = connection.scalar(sa.select(table.c.properties))
    assert json.loads(text or "") == {"Stadt": "Köln", "TAGS": "bezahlt", "WAIT": "true"}
    assert "Köln" in (text or "")


def test_a_message_that_could_never_be_sent_is_refused_in_the_transaction(engine: sa.Engine) -> None:
    large = {"text": "x" * 32767}
    small = Outbox(max_message_size=10)
    with engine.begin() as connection:
        for bad in (Message("bad topic!", b"1"), Message("orders", b""), Message("orders", b"1", properties=large)):
            with pytest.raises(InvalidMessageError):
                outbox.add(connection, bad)
        with pytest.raises(InvalidMessageError, match="at most 10"):
            small.add(connection, Message("orders", b"12345678901"))
    assert bodies(engine) == []


def test_an_engine_is_no_transaction(engine: sa.Engine) -> None:
    with pytest.raises(InvalidMessageError, match=r"with engine\.begin\(\) as connection"):
        outbox.add(engine, Message("orders", b"1"))  # type: ignore[call-overload]


def test_the_table_can_be_part_of_an_application(tmp_path: Path) -> None:
    metadata = sa.MetaData()
    own = Outbox(outbox_table(metadata, "messages_to_send"))
    sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
    with engine_at(f"sqlite:///{tmp_path / 'own.db'}") as engine:
        metadata.create_all(engine)
        with engine.begin() as connection:
            own.add(connection, Message("orders", b"1"))
        assert set(sa.inspect(engine).get_table_names()) >= {"orders", "messages_to_send"}
        own.create_table(engine)


def test_a_number_is_not_given_twice(engine: sa.Engine) -> None:
    for _ in range(2):
        with engine.begin() as connection:
            outbox.add(connection, Message("orders", b"1"))
            (number,) = connection.scalars(sa.select(table.c.id))
            assert outbox.discard(connection, number)
            assert not outbox.discard(connection, number)
    assert number == 2


def test_the_backlog_tells_how_much_waits_and_since_when(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        assert outbox.backlog(connection).waiting == 0
        assert outbox.backlog(connection).oldest == 0
        outbox.add_all(connection, [Message("orders", b"1"), Message("orders", b"2")])
        connection.execute(sa.update(table).where(table.c.id == 2).values(failures=3, last_error="no route"))
        connection.execute(sa.update(table).values(created_at=table.c.created_at - 60_000))
        backlog = outbox.backlog(connection)
        (failing,) = outbox.failing(connection)
        assert outbox.failing(connection, failures=4) == []
    assert (backlog.waiting, backlog.failing) == (2, 1)
    assert backlog.oldest >= 60
    assert (failing.id, failing.topic, failing.failures, failing.last_error) == (2, "orders", 3, "no route")


def test_only_databases_that_this_was_written_for_are_used() -> None:
    with pytest.raises(UnsupportedDatabaseError, match="unsupported database oracle"):
        check_supported("oracle")


@pytest.mark.parametrize("package", ["outbox", "idempotent"])
def test_without_sqlalchemy_one_is_told_what_to_install(package: str) -> None:
    program = f"import sys; sys.modules['sqlalchemy'] = None; import orbitmq.{package}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("SQLAlchemy 2 is not installed: pip install orbitmq[sql]")


async def test_connections_and_sessions_of_asyncio_are_awaited(sqlite: sa.Engine) -> None:
    pytest.importorskip("greenlet", reason="SQLAlchemy for asyncio needs greenlet")
    pytest.importorskip("aiosqlite", reason="SQLite for asyncio needs aiosqlite")
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

    theirs = create_async_engine(sqlite.url.set(drivername="sqlite+aiosqlite"))
    try:
        async with theirs.begin() as connection:
            await connection.run_sync(outbox.create_table)
            message_id = await outbox.add(connection, Message("orders", b"1"))
            await outbox.add_all(connection, [Message("orders", b"2"), Message("orders", b"3")])
        make: async_sessionmaker[AsyncSession] = async_sessionmaker(theirs)
        async with make.begin() as session:
            await outbox.add(session, Message("orders", b"4"))
        async with make() as session:
            await outbox.add(session, Message("orders", b"not committed"))
    finally:
        await theirs.dispose()
    assert bodies(sqlite) == [b"1", b"2", b"3", b"4"]
    assert taken(sqlite)[0].message_id == message_id
