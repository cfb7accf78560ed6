"""Idempotent consumers that are killed: work in the transaction is done once, work elsewhere at least once."""

from __future__ import annotations

import asyncio
import collections
import signal
import threading
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from faults.client.load import client_process
from orbitmq import ConsumeResult, Message, ReceivedMessage
from orbitmq.idempotent import ConsumedMessages, State, idempotent
from support.cli.server_process import soon
from support.client.idempotent_harness import GROUP, done, received, work
from support.client.user_databases import KINDS, databases, engine_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.testing.cluster_thread import ThreadCluster
    from support.client.user_databases import Databases

TOPIC = "orders"
BODIES = [f"{number:03}" for number in range(60)]
PATIENCE = 30.0

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


def send_all(cluster: ThreadCluster) -> None:
    producer = cluster.producer()
    for body in BODIES:
        producer.send(Message(TOPIC, body))


def noted(engine: sa.Engine) -> int:
    """How many messages are known to be done."""
    with engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count(records.table.c.done_at))) or 0


def process_of(engine: sa.Engine, cluster: ThreadCluster, path: str, moment: str) -> tuple[str, ...]:
    url = engine.url.render_as_string(hide_password=False)
    return "idempotent_process.py", url, cluster.name_server, GROUP, path, moment


async def test_work_in_the_transaction_is_done_once_whenever_its_process_is_killed(
    engine: sa.Engine, orbitmq: ThreadCluster, tmp_path: Path
) -> None:
    send_all(orbitmq)
    for moment in ("working 1", "done 1", "working 9", "done 20"):
        async with client_process(tmp_path, *process_of(engine, orbitmq, "", moment)) as consumer:
            assert await consumer.ended() == -signal.SIGKILL, consumer.errors
    async with client_process(tmp_path, *process_of(engine, orbitmq, "", "never")):
        await soon(lambda: noted(engine) == len(BODIES))
        await orbitmq.until_consumed(GROUP, PATIENCE)
    assert sorted(done(engine)) == BODIES


async def test_work_elsewhere_is_done_although_its_process_is_killed(
    engine: sa.Engine, orbitmq: ThreadCluster, tmp_path: Path
) -> None:
    send_all(orbitmq)
    file = tmp_path / "work"
    path = str(file)
    for moment in ("working 1", "done 3", "working 9"):
        async with client_process(tmp_path, *process_of(engine, orbitmq, path, moment)) as consumer:
            assert await consumer.ended() == -signal.SIGKILL, consumer.errors
    async with client_process(tmp_path, *process_of(engine, orbitmq, path, "never")):

        def is_done() -> bool:
            # What somebody has who is gone is put off until its lease is over.
            orbitmq.advance(15)
            return noted(engine) == len(BODIES)

        await soon(is_done)
        await orbitmq.until_consumed(GROUP, PATIENCE)
    counts = collections.Counter(file.read_text().split())
    assert sorted(counts) == BODIES
    # Two were worked on at a time when it was killed, at most, and none of those that were finished is done again.
    assert counts.total() - len(BODIES) <= 2 * 3
    assert orbitmq.dead_letters(GROUP) == []


async def test_of_two_that_get_a_message_at_once_one_waits_for_the_other(engine: sa.Engine) -> None:
    begun, may_end = threading.Event(), threading.Event()
    fails = True

    @idempotent(engine, group=GROUP)
    def slow(message: ReceivedMessage, connection: sa.Connection) -> None:
        connection.execute(sa.insert(work).values(done="slow"))
        begun.set()
        assert may_end.wait(PATIENCE)
        if fails:
            raise ZeroDivisionError

    @idempotent(engine, group=GROUP)
    def quick(message: ReceivedMessage, connection: sa.Connection) -> None:
        connection.execute(sa.insert(work).values(done="quick"))

    for fails, message_id, ends in ((True, "A", None), (False, "B", ConsumeResult.SUCCESS)):
        begun.clear()
        may_end.clear()
        first = asyncio.create_task(asyncio.to_thread(slow, received(message_id)))
        await soon(begun.is_set)
        second = asyncio.create_task(asyncio.to_thread(quick, received(message_id)))
        may_end.set()
        assert await second is ends
        ended = await asyncio.gather(first, return_exceptions=True)
        assert isinstance(ended[0], ZeroDivisionError) == fails
    # The work that failed is gone, and was done by the other one; the work that did not was not done again.
    assert done(engine) == ["quick", "slow"]
    with engine.connect() as connection:
        assert records.state(connection, GROUP, TOPIC, "A") is State.DONE
