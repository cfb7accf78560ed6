"""Relays that are killed: whatever was committed is sent all the same, and each key in order."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from faults.client.load import check_at_least_once, client_process
from orbitmq import Message
from orbitmq.database import for_short_transactions
from orbitmq.outbox import Outbox, RelayConfig
from orbitmq.outbox.claim import ClaimStatements
from support.cli.server_process import soon
from support.client.user_databases import KINDS, databases, engine_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from orbitmq.testing.cluster_thread import ThreadCluster
    from support.client.user_databases import Databases

TOPIC = "orders"
KEYS = "abcde-"

outbox = Outbox()
orders = sa.Table("placed", sa.MetaData(), sa.Column("body", sa.String(20), primary_key=True))
"""The application's own work: what is there has to be sent, and nothing else."""


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Databases]:
    with databases(request.param) as made:
        yield made


@pytest.fixture
def engine(server: Databases, tmp_path: Path) -> Iterator[sa.Engine]:
    with engine_at(server.new(tmp_path)) as made:
        outbox.create_table(made)
        orders.create(made)
        yield made


def url_of(engine: sa.Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def place_orders(engine: sa.Engine, numbers: Sequence[int]) -> None:
    """Transactions of an application, of which every fifth comes to nothing."""
    for number in numbers:
        body = f"{KEYS[number % len(KEYS)]}{number:04}"
        with engine.connect() as connection:
            connection.execute(sa.insert(orders).values(body=body))
            outbox.add(connection, Message(TOPIC, body, sharding_key=None if body[0] == "-" else body[0]))
            if number % 5:
                connection.commit()
            else:
                connection.rollback()


def placed(engine: sa.Engine) -> list[bytes]:
    with engine.connect() as connection:
        return [body.encode() for body in connection.scalars(sa.select(orders.c.body))]


def waiting(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return outbox.backlog(connection).waiting


def check(engine: sa.Engine, cluster: ThreadCluster) -> int:
    """Everything that was committed was sent, nothing else was, and the first ones of each key are in order."""
    messages = cluster.messages(TOPIC)
    bodies = [message.body for message in messages]
    repeats = check_at_least_once(placed(engine), bodies)
    assert set(bodies) == set(placed(engine))
    for key in KEYS[:-1].encode():
        firsts = list(dict.fromkeys(body for body in bodies if body[0] == key))
        assert firsts == sorted(firsts)
    ids = {message.body: message.message_id for message in messages}
    assert all(ids[message.body] == message.message_id for message in messages)
    return repeats


def relay_of(engine: sa.Engine, cluster: ThreadCluster, moment: str = "never") -> tuple[str, ...]:
    return "relay_process.py", url_of(engine), cluster.name_server, moment


async def finish(engine: sa.Engine, cluster: ThreadCluster, home: Path) -> None:
    async with client_process(home, *relay_of(engine, cluster)):
        await soon(lambda: waiting(engine) == 0)


async def test_relays_killed_at_chosen_moments_lose_nothing(
    engine: sa.Engine, orbitmq: ThreadCluster, tmp_path: Path
) -> None:
    place_orders(engine, range(100))
    # One that is sent but not marked is sent again; one that is taken but not sent waits for the lease.
    for life, moment in enumerate(("send 1", "sent 1", "sent 7", "sent 25"), 1):
        async with client_process(tmp_path, *relay_of(engine, orbitmq, moment)) as relay:
            assert await relay.ended() == -signal.SIGKILL, relay.errors
        place_orders(engine, range(100 * life, 100 * life + 20))
    await finish(engine, orbitmq, tmp_path)
    assert check(engine, orbitmq) >= 3


@pytest.mark.parametrize("seed", [1, 2])
async def test_relays_side_by_side_killed_again_and_again_lose_nothing(
    engine: sa.Engine, orbitmq: ThreadCluster, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with placing(engine):
        for _ in range(3):
            arguments = relay_of(engine, orbitmq)
            async with client_process(tmp_path, *arguments) as one, client_process(tmp_path, *arguments) as other:
                for relay in (one, other):
                    count = len(orbitmq.messages(TOPIC)) + 1 + chance.randrange(40)
                    await soon(lambda: len(orbitmq.messages(TOPIC)) >= count)  # noqa: B023
                    assert await relay.stopped(signal.SIGKILL) == -signal.SIGKILL
    await finish(engine, orbitmq, tmp_path)
    check(engine, orbitmq)


@contextlib.contextmanager
def placing(engine: sa.Engine) -> Iterator[None]:
    """An application at work meanwhile."""
    stop = threading.Event()

    def place() -> None:
        for number in range(0, 9000, 5):
            place_orders(engine, range(number, number + 5))
            if stop.wait(0.02):
                return

    thread = threading.Thread(target=place)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def test_a_relay_that_is_told_to_stop_gives_back_what_it_has_not_sent(
    engine: sa.Engine, orbitmq: ThreadCluster, tmp_path: Path
) -> None:
    place_orders(engine, range(200))
    async with client_process(tmp_path, *relay_of(engine, orbitmq)) as relay:
        await relay.says("(ready)")
        assert await relay.stopped(signal.SIGTERM) == 0
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count(outbox.table.c.taken_by))) == 0
    await finish(engine, orbitmq, tmp_path)
    assert check(engine, orbitmq) == 0


def test_while_one_takes_a_lane_no_other_gets_any_of_it(engine: sa.Engine) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite lets only one write at a time, and the other one waits")
    taking = ClaimStatements(outbox.table, RelayConfig(batch_size=3))
    place_orders(engine, [1, 7, 13, 19, 31])
    place_orders(engine, [2, 3])
    own = for_short_transactions(engine)
    with own.connect() as first, own.connect() as second:
        candidates = taking.candidates(first)
        assert len(candidates) == 3
        # The first has taken, but not committed: to the second, all looks as it was.
        got = taking.claim(first, candidates[:1], "first")
        assert [one.message.body for lane in got for one in lane] == [b"b0001", b"b0007", b"b0013"]
        assert taking.candidates(second) == candidates
        too = taking.claim(second, candidates, "second")
        assert sorted(one.message.body for lane in too for one in lane) == [b"c0002", b"d0003"]
        first.commit()
        second.commit()
        assert taking.candidates(second) == []
