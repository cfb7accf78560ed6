"""The relay: what was committed arrives, in order where order was asked for, whatever fails on the way."""

from __future__ import annotations

import asyncio
import collections
import logging
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from orbitmq import InvalidMessageError, Message, NotRunningError, Producer
from orbitmq import aio as omq_aio
from orbitmq.database import UnusableDatabaseError
from orbitmq.idempotent import ConsumedMessages, idempotent, idempotent_with_lease
from orbitmq.outbox import OUTBOX_ID, Outbox, Relay, UnsentMessage, run_relay
from orbitmq.testing import LocalCluster
from support.client.cluster_harness import nothing_left
from support.client.producer_harness import peer_brokers
from support.client.user_databases import KINDS, databases, engine_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orbitmq import ReceivedMessage
    from orbitmq.testing.cluster_thread import ThreadCluster
    from support.client.user_databases import Databases

PATIENCE = 30.0
QUICK: dict[str, Any] = {"poll_interval": 0.02, "first_retry": 0.05, "longest_retry": 0.2}
IMPATIENT: dict[str, Any] = {"send_msg_timeout": 0.5, "api_timeout": 0.5}

outbox = Outbox()
table = outbox.table


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Databases]:
    with databases(request.param) as made:
        yield made


@pytest.fixture
def url(server: Databases, tmp_path: Path) -> str:
    return server.new(tmp_path)


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    with engine_at(url) as made:
        outbox.create_table(made)
        yield made


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[sa.Engine]:
    with engine_at(f"sqlite:///{tmp_path / 'shop.db'}") as made:
        yield made


def eventually(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.01)


def add(engine: sa.Engine, *bodies: str, topic: str = "orders") -> list[str]:
    """Messages whose first letter is their key; those that begin with a dash have none."""
    with engine.begin() as connection:
        return outbox.add_all(
            connection, [Message(topic, body, sharding_key=None if body[0] == "-" else body[0]) for body in bodies]
        )


def waiting(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return outbox.backlog(connection).waiting


def sent(cluster: ThreadCluster, topic: str = "orders") -> list[str]:
    return [message.text() for message in cluster.messages(topic)]


def in_order_of_keys(bodies: list[str]) -> bool:
    """Whether those of each key were sent in the order of their numbers."""
    last: dict[str, str] = collections.defaultdict(str)
    for body in bodies:
        if body[0] != "-":
            if body < last[body[0]]:
                return False
            last[body[0]] = body
    return True


def test_what_was_committed_arrives_and_what_was_not_does_not(engine: sa.Engine, orbitmq: ThreadCluster) -> None:
    with engine.begin() as connection:
        message_id = outbox.add(
            connection,
            Message("orders", b"\x00\xff", tags="paid", keys=["42"], properties={"Stadt": "Köln"}, flag=7),
        )
    with engine.connect() as connection:
        outbox.add(connection, Message("orders", b"rolled back"))
        connection.rollback()
    with Relay(engine, orbitmq.producer(), **QUICK):
        eventually(lambda: waiting(engine) == 0)
    (message,) = orbitmq.messages("orders")
    assert (message.body, message.tags, message.keys, message.flag) == (b"\x00\xff", "paid", ["42"], 7)
    assert message.properties["Stadt"] == "Köln"
    assert message.message_id == message_id
    assert message.properties[OUTBOX_ID] == "1"


def test_many_relays_send_each_message_once_and_in_order(
    engine: sa.Engine, url: str, orbitmq: ThreadCluster
) -> None:
    bodies = [f"{'abcdefgh--'[number % 10]}{number:04}" for number in range(600)]
    producer = orbitmq.producer()
    with engine_at(url) as another:
        relays = [Relay(one, producer, batch_size=13, **QUICK) for one in (engine, another, another)]
        for relay in relays:
            relay.start()
        for start in range(0, len(bodies), 20):
            add(engine, *bodies[start : start + 20])
        eventually(lambda: waiting(engine) == 0)
        for relay in relays:
            relay.close()
    assert sorted(sent(orbitmq)) == sorted(bodies)
    assert in_order_of_keys(sent(orbitmq))


def test_while_the_broker_is_down_messages_wait_and_then_come_in_order(
    engine: sa.Engine, orbitmq: ThreadCluster, caplog: pytest.LogCaptureFixture
) -> None:
    alarms: list[UnsentMessage] = []
    producer = orbitmq.producer(**IMPATIENT)
    add(engine, "a0")
    with Relay(engine, producer, alarm=alarms.append, alarm_after=2, **QUICK):
        eventually(lambda: waiting(engine) == 0)
        orbitmq.kill()
        add(engine, "a1", "a2", "-1", "b1")
        eventually(lambda: len(alarms) >= 3)
        add(engine, "a3")
        orbitmq.start("broker-a")
        eventually(lambda: waiting(engine) == 0)
    assert {"a1", "a2", "a3", "b1", "-1"} <= set(sent(orbitmq))
    firsts = list(dict.fromkeys(sent(orbitmq)))
    assert [body for body in firsts if body in {"a1", "a2", "a3"}] == ["a1", "a2", "a3"]
    assert {alarm.topic for alarm in alarms} == {"orders"}
    assert all(alarm.failures % 2 == 0 and alarm.last_error for alarm in alarms)
    assert "failed, will retry" in caplog.text


def test_a_relay_that_is_woken_does_not_wait_to_look(sqlite_engine: sa.Engine, orbitmq: ThreadCluster) -> None:
    outbox.create_table(sqlite_engine)
    with Relay(sqlite_engine, orbitmq.producer(), poll_interval=3600) as relay:
        for number in range(5):
            add(sqlite_engine, f"-{number}")
            relay.wake()
            eventually(lambda: waiting(sqlite_engine) == 0)
    assert len(sent(orbitmq)) == 5


def test_one_round_can_be_asked_for(sqlite_engine: sa.Engine, orbitmq: ThreadCluster) -> None:
    outbox.create_table(sqlite_engine)
    relay = Relay(sqlite_engine, orbitmq.producer(), batch_size=2, keep_sent=0)
    assert (relay.run_once().taken, relay.clean()) == (0, 0)
    add(sqlite_engine, "-1", "-2", "-3")
    assert [relay.run_once().sent for _ in range(3)] == [2, 1, 0]
    assert relay.clean() == 3


def test_a_relay_leaves_nothing_behind(sqlite_engine: sa.Engine) -> None:
    outbox.create_table(sqlite_engine)
    with (
        nothing_left(),
        LocalCluster() as cluster,
        Producer(cluster.name_server) as producer,
        Relay(sqlite_engine, producer, **QUICK) as relay,
    ):
        with pytest.raises(NotRunningError, match="already running"):
            relay.start()
        add(sqlite_engine, "-1")
        eventually(lambda: waiting(sqlite_engine) == 0)
    relay.close()


def test_a_relay_outlives_a_database_that_is_not_there_yet(
    sqlite_engine: sa.Engine, orbitmq: ThreadCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with Relay(sqlite_engine, orbitmq.producer(), **QUICK):
        eventually(lambda: "no such table" in caplog.text)
        outbox.create_table(sqlite_engine)
        add(sqlite_engine, "-1")
        eventually(lambda: waiting(sqlite_engine) == 0)


def test_a_relay_without_a_producer_gives_back_what_it_took(
    sqlite_engine: sa.Engine, orbitmq: ThreadCluster, caplog: pytest.LogCaptureFixture
) -> None:
    outbox.create_table(sqlite_engine)
    add(sqlite_engine, "a1", "a2")
    relay = Relay(sqlite_engine, Producer(orbitmq.name_server), **QUICK)
    with pytest.raises(NotRunningError):
        relay.run_once()
    relay.run()
    assert "outbox relay: orbitmq_outbox stopped" in caplog.text
    assert Relay(sqlite_engine, orbitmq.producer()).run_once().sent == 2
    with sqlite_engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.sum(table.c.failures))) == 0


def test_what_can_never_be_sent_is_told_at_once_and_holds_its_own_key_only(
    sqlite_engine: sa.Engine, orbitmq: ThreadCluster
) -> None:
    outbox.create_table(sqlite_engine)
    alarms: list[UnsentMessage] = []

    def fail(unsent: UnsentMessage) -> None:
        alarms.append(unsent)
        raise ZeroDivisionError

    relay = Relay(sqlite_engine, orbitmq.producer(max_message_size=10), alarm=fail)
    add(sqlite_engine, "a" * 11, "a2", "b1")
    assert (relay.run_once().sent, sent(orbitmq)) == (1, ["b1"])
    assert relay.run_once().sent == 0
    ((number, error),) = [(alarm.id, alarm.last_error) for alarm in alarms]
    assert "at most 10 are allowed" in (error or "")
    with sqlite_engine.begin() as connection:
        assert outbox.discard(connection, number)
    assert relay.run_once().sent == 1


def test_a_row_that_somebody_has_spoiled_holds_its_own_key_only(
    sqlite_engine: sa.Engine, orbitmq: ThreadCluster
) -> None:
    outbox.create_table(sqlite_engine)
    alarms: list[UnsentMessage] = []
    add(sqlite_engine, "a1", "a2", "b1", "-1", "-2")
    with sqlite_engine.begin() as connection:
        for number, text in ((1, "{"), (4, "[]")):
            connection.execute(sa.update(table).where(table.c.id == number).values(properties=text))
    assert Relay(sqlite_engine, orbitmq.producer(), alarm=alarms.append).run_once().sent == 2
    assert sorted(sent(orbitmq)) == ["-2", "b1"]
    assert sorted(alarm.id for alarm in alarms) == [1, 4]
    assert all("its properties are not a JSON object" in (alarm.last_error or "") for alarm in alarms)


@pytest.mark.parametrize("resend", [True, False])
async def test_what_a_broker_has_not_saved_is_sent_again_unless_that_is_not_wanted(
    sqlite_engine: sa.Engine, resend: bool
) -> None:
    outbox.create_table(sqlite_engine)
    async with peer_brokers("broker-a") as peers:
        (broker,) = peers.brokers
        broker.codes = [10, 12]
        add(sqlite_engine, "a1")

        def send_all() -> None:
            with (
                Producer(peers.name_server, group="outbox") as producer,
                Relay(sqlite_engine, producer, resend_unsaved=resend, **QUICK),
            ):
                eventually(lambda: waiting(sqlite_engine) == 0)

        await asyncio.to_thread(send_all)
        assert broker.bodies == [b"a1"] * (3 if resend else 1)
        ids = {send.ext_fields["i"].split("UNIQ_KEY\x01")[1][:32] for send in broker.sends}
        assert len(ids) == 1


def test_options_and_things_that_cannot_be_are_refused(sqlite_engine: sa.Engine) -> None:
    producer = Producer("127.0.0.1:1")
    with pytest.raises(InvalidMessageError, match="did you mean batch_size"):
        Relay(sqlite_engine, producer, batchsize=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidMessageError, match=r"needs an orbitmq\.Producer"):
        Relay(sqlite_engine, omq_aio.Producer("127.0.0.1:1"))  # type: ignore[arg-type]
    with pytest.raises(InvalidMessageError, match=r"needs an engine of sqlalchemy\.create_engine"):
        Relay("sqlite://", producer)  # type: ignore[arg-type]


# As a program


def test_as_a_program_it_runs_until_it_is_told_to_stop(engine: sa.Engine, url: str, orbitmq: ThreadCluster) -> None:
    add(engine, "-1", "-2")
    program = (
        f"from orbitmq.outbox import run_relay; run_relay({url!r}, {orbitmq.name_server!r}, poll_interval=0.05)"
    )
    with subprocess.Popen([sys.executable, "-W", "error", "-c", program]) as process:
        try:
            eventually(lambda: waiting(engine) == 0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_as_a_program_it_says_in_a_sentence_what_is_missing(tmp_path: Path, orbitmq: ThreadCluster) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with pytest.raises(
        UnusableDatabaseError, match=r"^the outbox 'messages' cannot be used: no such table: messages$"
    ):
        run_relay(url, orbitmq.name_server, table="messages")
    with pytest.raises(InvalidMessageError, match="lease"):
        run_relay(url, orbitmq.name_server, create_table=True, lease=0)


# With those who consume


def test_what_is_sent_twice_is_consumed_once(engine: sa.Engine, orbitmq: ThreadCluster) -> None:
    records = ConsumedMessages()
    records.create_table(engine)
    work = sa.Table("work", sa.MetaData(), sa.Column("body", sa.String(20)))
    work.create(engine)
    outside: list[str] = []
    seen = threading.Semaphore(0)
    consumer = orbitmq.consumer("billing", consume_from_where="CONSUME_FROM_FIRST_OFFSET", consume_thread_max=4)
    second = orbitmq.consumer("mail", consume_from_where="CONSUME_FROM_FIRST_OFFSET")

    @idempotent(engine, group="billing")
    def write(message: ReceivedMessage, connection: sa.Connection) -> None:
        connection.execute(sa.insert(work).values(body=message.text()))
        outbox.add(connection, Message("invoices", message.body))

    @idempotent_with_lease(engine, group="mail")
    async def send_mail(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        outside.append(message.text())
        seen.release()

    consumer.subscribe("orders", write)
    second.subscribe("orders", send_mail)
    bodies = [f"{'abc-'[number % 4]}{number:02}" for number in range(20)]
    with Relay(engine, orbitmq.producer(), **QUICK):
        add(engine, *bodies)
        eventually(lambda: waiting(engine) == 0)
        with consumer, second:
            for _ in bodies:
                assert seen.acquire(timeout=PATIENCE)
            # As after a relay that was killed when the broker had them.
            with engine.begin() as connection:
                again = sa.update(table).where(table.c.topic == "orders").values(due_at=0, sent_at=None)
                connection.execute(again)
            eventually(lambda: len(sent(orbitmq)) == 40)
            orbitmq.wait_until_consumed("billing", PATIENCE)
            orbitmq.wait_until_consumed("mail", PATIENCE)
        eventually(lambda: waiting(engine) == 0)
    with engine.connect() as connection:
        assert sorted(connection.scalars(sa.select(work.c.body))) == sorted(bodies)
    assert sorted(outside) == sorted(bodies)
    assert sorted(sent(orbitmq, "invoices")) == sorted(bodies)


def test_warnings_are_all_that_is_logged_of_a_quiet_relay(
    sqlite_engine: sa.Engine, orbitmq: ThreadCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "orbitmq.outbox")
    outbox.create_table(sqlite_engine)
    with Relay(sqlite_engine, orbitmq.producer(), **QUICK):
        add(sqlite_engine, "-1")
        eventually(lambda: waiting(sqlite_engine) == 0)
    assert [record for record in caplog.records if record.name == "orbitmq.outbox"] == []
