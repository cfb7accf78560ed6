"""Handlers that do their work once: in a transaction with the note of it, or with a lease around it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

from orbitmq import ConsumeResult, InvalidMessageError, Message, ReceivedMessage
from orbitmq.idempotent import (
    ConsumedMessages,
    State,
    by_keys,
    consumed_table,
    idempotent,
    idempotent_with_lease,
)
from orbitmq.idempotent import once as once_module
from orbitmq.outbox import Outbox
from support.client.idempotent_harness import GROUP, done, received, work
from support.client.user_databases import KINDS, databases, engine_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.client.user_databases import Databases

records = ConsumedMessages()


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Databases]:
    with databases(request.param) as made:
        yield made


@pytest.fixture
def engine(server: Databases, tmp_path: Path) -> Iterator[sa.Engine]:
    with engine_at(server.new(tmp_path)) as made:
        records.create_table(made)
        work.create(made)
        yield made


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sa.Engine]:
    """For what is the same in all of them, and needs a driver for asyncio."""
    with engine_at(f"sqlite:///{tmp_path / 'shop.db'}") as made:
        records.create_table(made)
        work.create(made)
        yield made


def state(engine: sa.Engine, key: str, topic: str = "orders") -> State:
    with engine.connect() as connection:
        return records.state(connection, GROUP, topic, key)


def later(engine: sa.Engine, seconds: float) -> None:
    """Let so much time have passed for the table."""
    with engine.begin() as connection:
        for name in ("lease_until", "done_at", "expires_at"):
            column = records.table.c[name]
            connection.execute(sa.update(records.table).values({column: column - round(seconds * 1000)}))


def note(message: ReceivedMessage, connection: sa.Connection | Session) -> None:
    connection.execute(sa.insert(work).values(done=message.message_id))


# In a transaction


def test_a_message_that_comes_again_is_consumed_once(engine: sa.Engine) -> None:
    handle = idempotent(engine, group=GROUP)(note)
    assert state(engine, "A") is State.NEW
    for _ in range(3):
        assert handle(received("A")) in {None, ConsumeResult.SUCCESS}
    handle(received("B"))
    assert done(engine) == ["A", "B"]
    assert state(engine, "A") is State.DONE


def test_work_that_fails_is_undone_and_done_again(engine: sa.Engine) -> None:
    fails = True

    @idempotent(engine, group=GROUP)
    def handle(message: ReceivedMessage, connection: sa.Connection) -> None:
        note(message, connection)
        if fails:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handle(received("A"))
    assert (done(engine), state(engine, "A")) == ([], State.NEW)
    fails = False
    handle(received("A"))
    assert done(engine) == ["A"]


@pytest.mark.parametrize(
    "result",
    [ConsumeResult.LATER, ConsumeResult.later(-1), ConsumeResult.success(-1)],
    ids=["later", "dead", "none"],
)
def test_work_that_is_put_off_is_undone(engine: sa.Engine, result: ConsumeResult) -> None:
    @idempotent(engine, group=GROUP)
    def handle(message: ReceivedMessage, connection: sa.Connection) -> ConsumeResult:
        note(message, connection)
        return result

    @idempotent_with_lease(engine, group=GROUP)
    def handle_outside(message: ReceivedMessage) -> ConsumeResult:
        return result

    assert handle(received("A")) is result
    assert handle_outside(received("A")) is result
    assert (done(engine), state(engine, "A")) == ([], State.NEW)


def test_what_the_handler_returns_is_passed_on(engine: sa.Engine) -> None:
    @idempotent(engine, group=GROUP)
    def handle(message: ReceivedMessage, connection: sa.Connection) -> ConsumeResult:
        return ConsumeResult.success(0, delay_level=3)

    assert handle(received("A")) == ConsumeResult.success(0, delay_level=3)
    assert handle.__name__ == "handle"


def test_a_sessionmaker_gives_sessions(engine: sa.Engine) -> None:
    handle = idempotent(sessionmaker(engine), group=GROUP)(note)
    handle(received("A"))
    handle(received("A"))
    assert done(engine) == ["A"]


def test_another_group_or_topic_has_its_own_notes(engine: sa.Engine) -> None:
    for group in ("billing", "mail"):
        handle = idempotent(engine, group=group, key=by_keys)(note)
        handle(received("A", keys="42"))
        handle(received("B", topic="refunds", keys="42"))
        handle(received("C", keys="42"))
    assert done(engine) == ["A", "B", "A", "B"]


def test_messages_are_the_same_if_their_keys_are(engine: sa.Engine) -> None:
    handle = idempotent(engine, group=GROUP, key=by_keys)(note)
    for message_id, keys in (
        ("A", "42"),
        ("B", "42"),
        ("C", "42 43"),
        ("D", "ä"),
        ("E", "Ä"),
        ("F", "a"),
        ("G", "A"),
    ):
        handle(received(message_id, keys=keys))
    assert done(engine) == ["A", "C", "D", "E", "F", "G"]
    with pytest.raises(InvalidMessageError, match="has no keys"):
        handle(received("H"))


def test_keys_are_of_any_length_and_script(engine: sa.Engine) -> None:
    keys = ["x" * 10_000, "x" * 10_001, "\x00", "\x00\x00", "\ud800", "'; DROP TABLE work"]
    handle = idempotent(engine, group=GROUP, key=lambda message: keys[int(message.message_id)])(note)
    for _ in range(2):
        for number in range(len(keys)):
            handle(received(str(number)))
    assert done(engine) == [str(number) for number in range(len(keys))]


def test_a_key_is_a_text(engine: sa.Engine) -> None:
    for key in ("", None, 42):
        handle = idempotent(engine, group=GROUP, key=lambda _, key=key: key)(note)  # type: ignore[misc]
        with pytest.raises(InvalidMessageError, match="must be a non-empty text"):
            handle(received("A"))


def test_lists_of_messages_are_refused(engine: sa.Engine) -> None:
    handle: Any = idempotent(engine, group=GROUP)(note)
    with pytest.raises(InvalidMessageError, match="one message at a time"):
        handle([received("A")])


def test_messages_sent_in_answer_are_sent_once(engine: sa.Engine) -> None:
    outbox = Outbox()
    outbox.create_table(engine)

    @idempotent(engine, group=GROUP)
    def handle(message: ReceivedMessage, connection: sa.Connection) -> None:
        outbox.add(connection, Message("invoices", message.body))

    handle(received("A"))
    handle(received("A"))
    with engine.connect() as connection:
        assert outbox.backlog(connection).waiting == 1


def test_many_threads_consume_a_message_once(engine: sa.Engine) -> None:
    handle = idempotent(engine, group=GROUP)(note)
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(handle(received("A")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done(engine) == ["A"]
    assert len(results) == 8


# With a lease


def test_with_a_lease_a_message_is_consumed_once(engine: sa.Engine) -> None:
    consumed: list[str] = []
    states: list[State] = []

    @idempotent_with_lease(engine, group=GROUP)
    def handle(message: ReceivedMessage) -> None:
        consumed.append(message.message_id)
        states.append(state(engine, "A"))

    for _ in range(3):
        assert handle(received("A")) in {None, ConsumeResult.SUCCESS}
    assert consumed == ["A"]
    assert states == [State.IN_PROGRESS]
    assert state(engine, "A") is State.DONE


def test_what_is_in_progress_is_put_off_until_the_lease_is_over(engine: sa.Engine) -> None:
    consumed: list[str] = []

    @idempotent_with_lease(engine, group=GROUP, lease=60)
    def handle(message: ReceivedMessage) -> None:
        consumed.append(message.message_id)

    with engine.begin() as connection:
        # As somebody leaves it who was killed.
        assert records.begin(connection, GROUP, "orders", "A", owner="gone", lease=60, keep=100) is State.NEW
    assert handle(received("A")) is ConsumeResult.LATER
    later(engine, 59)
    assert handle(received("A")) is ConsumeResult.LATER
    assert consumed == []
    later(engine, 2)
    assert handle(received("A")) is None
    assert consumed == ["A"]
    assert state(engine, "A") is State.DONE


def test_a_transaction_waits_for_a_lease_too(engine: sa.Engine) -> None:
    handle = idempotent(engine, group=GROUP)(note)
    with engine.begin() as connection:
        records.begin(connection, GROUP, "orders", "A", owner="other", lease=60, keep=100)
    assert handle(received("A")) is ConsumeResult.LATER
    later(engine, 61)
    handle(received("A"))
    assert done(engine) == ["A"]


def test_what_fails_is_new_again_at_once(engine: sa.Engine) -> None:
    fails = True

    @idempotent_with_lease(engine, group=GROUP)
    def handle(message: ReceivedMessage) -> str:
        if fails:
            raise ZeroDivisionError
        return "done"

    with pytest.raises(ZeroDivisionError):
        handle(received("A"))
    assert state(engine, "A") is State.NEW
    fails = False
    assert handle(received("A")) == "done"


def test_who_took_too_long_does_not_undo_what_another_does(engine: sa.Engine) -> None:
    names = (GROUP, "orders", "A")
    with engine.begin() as connection:
        assert records.begin(connection, *names, owner="slow", lease=60, keep=100) is State.NEW
    later(engine, 61)
    with engine.begin() as connection:
        assert records.begin(connection, *names, owner="other", lease=60, keep=100) is State.NEW
        assert not records.give_up(connection, *names, owner="slow")
    assert state(engine, "A") is State.IN_PROGRESS
    with engine.begin() as connection:
        # It is done, though by the slow one.
        assert records.end(connection, *names, keep=100)
        assert not records.give_up(connection, *names, owner="other")
        assert not records.end(connection, *names, keep=100)
    assert state(engine, "A") is State.DONE


# What is kept


def test_notes_are_kept_as_long_as_said(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once_module, "CLEAN_INTERVAL", 0)
    handle = idempotent(engine, group=GROUP, keep=100)(note)
    handle(received("A"))
    later(engine, 99)
    handle(received("B"))
    assert state(engine, "A") is State.DONE
    later(engine, 2)
    handle(received("C"))
    assert (state(engine, "A"), state(engine, "B")) == (State.NEW, State.DONE)


def test_a_message_can_be_forgotten(engine: sa.Engine) -> None:
    handle = idempotent(engine, group=GROUP)(note)
    handle(received("A"))
    with engine.begin() as connection:
        assert records.forget(connection, GROUP, "orders", "A")
        assert not records.forget(connection, GROUP, "orders", "A")
    handle(received("A"))
    assert done(engine) == ["A", "A"]


def test_the_table_can_have_another_name(engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    own = ConsumedMessages(consumed_table(metadata, "seen"))
    metadata.create_all(engine)
    handle = idempotent(engine, group=GROUP, records=own)(note)
    handle(received("A"))
    handle(received("A"))
    assert done(engine) == ["A"]
    assert state(engine, "A") is State.NEW


# With asyncio


async def test_a_coroutine_function_with_a_lease_may_have_a_plain_engine(engine: sa.Engine) -> None:
    consumed: list[str] = []

    @idempotent_with_lease(engine, group=GROUP)
    async def handle(message: ReceivedMessage) -> ConsumeResult | None:
        await asyncio.sleep(0)
        consumed.append(message.message_id)
        if len(consumed) == 1:
            raise ZeroDivisionError
        return ConsumeResult.LATER if len(consumed) == 2 else None

    with pytest.raises(ZeroDivisionError):
        await handle(received("A"))
    assert await handle(received("A")) is ConsumeResult.LATER
    assert await handle(received("A")) is None
    assert await handle(received("A")) is ConsumeResult.SUCCESS
    assert consumed == ["A", "A", "A"]


async def test_a_handler_that_is_cancelled_leaves_its_message_new(engine: sa.Engine) -> None:
    begun = asyncio.Event()

    @idempotent_with_lease(engine, group=GROUP)
    async def handle(message: ReceivedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(handle(received("A")))
    await begun.wait()
    assert state(engine, "A") is State.IN_PROGRESS
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state(engine, "A") is State.NEW


async def test_coroutine_functions_get_connections_and_sessions_of_asyncio(sqlite: sa.Engine) -> None:
    pytest.importorskip("greenlet", reason="SQLAlchemy for asyncio needs greenlet")
    pytest.importorskip("aiosqlite", reason="SQLite for asyncio needs aiosqlite")
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    theirs = create_async_engine(sqlite.url.set(drivername="sqlite+aiosqlite"))
    fails = True

    async def note_async(message: ReceivedMessage, connection: Any) -> ConsumeResult | None:
        await connection.execute(sa.insert(work).values(done=message.message_id))
        if fails:
            raise ZeroDivisionError
        return ConsumeResult.LATER if message.message_id == "later" else None

    try:
        databases: list[Any] = [theirs, async_sessionmaker(theirs)]
        for number, database in enumerate(databases):
            handle = idempotent(database, group=GROUP)(note_async)
            fails = True
            with pytest.raises(ZeroDivisionError):
                await handle(received(str(number)))
            fails = False
            assert await handle(received("later")) is ConsumeResult.LATER
            for _ in range(2):
                await handle(received(str(number)))
            with_lease = idempotent_with_lease(database, group="other")(_nothing)
            assert await with_lease(received(str(number))) is None
            assert await with_lease(received(str(number))) is ConsumeResult.SUCCESS
        with pytest.raises(InvalidMessageError, match="is a plain function"):
            idempotent(theirs, group=GROUP)(note)
    finally:
        await theirs.dispose()
    assert done(sqlite) == ["0", "1"]


async def _nothing(_: ReceivedMessage) -> None:
    return None


def test_what_cannot_work_is_refused_before_there_is_a_message(engine: sa.Engine) -> None:
    with pytest.raises(InvalidMessageError, match="is a coroutine function"):

        @idempotent(engine, group=GROUP)
        async def handle(message: ReceivedMessage, connection: object) -> None: ...

    with pytest.raises(InvalidMessageError, match="group"):
        idempotent(engine, group="")
    with pytest.raises(InvalidMessageError, match="keep must be more than 0"):
        idempotent(engine, group=GROUP, keep=0)
    with pytest.raises(InvalidMessageError, match="lease must be more than 0"):
        idempotent_with_lease(engine, group=GROUP, lease=-1)


def test_a_function_that_returns_a_coroutine_is_told_so(engine: sa.Engine) -> None:
    async def note_async() -> None: ...

    def returns_coroutine(message: ReceivedMessage, connection: sa.Connection) -> object:
        return note_async()

    handle = idempotent(engine, group=GROUP)(returns_coroutine)
    with pytest.raises(InvalidMessageError, match="make it a coroutine function"):
        handle(received("A"))
    assert state(engine, "A") is State.NEW
