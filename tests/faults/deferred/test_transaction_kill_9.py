"""Kill -9 of a broker process during transactions, repeatedly: no commit is lost, nothing else is delivered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.record import decode_record
from peers.ports import endpoint
from support.broker.requests import pulled
from support.broker.transaction_harness import COMMIT, ROLLBACK, UNKNOWN, Half, TransactionPeer
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq
from support.remoting_harness import HOST, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIVES = int(os.environ.get("ORBITMQ_BROKER_KILLS", "4"))
PRODUCERS = 8
QUEUES = 4
SETTINGS = (
    "transactionTimeOut=300",
    "transactionCheckInterval=100",
    "transactionCheckMax=1000000",
    "transactionOpBatchInterval=50",
    "flushConsumerOffsetInterval=20",
    "brokerName=killed",
    "listenPort=0",
    f"bindAddress={HOST}",
)


class Truth:
    """Outcomes of the local transactions, by message body."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.of: dict[bytes, int] = {}
        self._numbers = itertools.count()

    def new_body(self) -> bytes:
        return b"%d" % next(self._numbers)

    def committed(self) -> set[bytes]:
        return {body for body, truth in self.of.items() if truth == COMMIT}


@contextlib.asynccontextmanager
async def broker_process(home: Path) -> AsyncIterator[tuple[ServerProcess, str]]:
    conf = home / "broker.conf"
    conf.write_text(SMALL_FILES + "\n".join(SETTINGS) + "\n")
    async with orbitmq(home, "broker", "-c", conf) as server:
        yield server, await server.says(r"listens on (\S+),")


@contextlib.asynccontextmanager
async def producing_at(address: str) -> AsyncIterator[TransactionPeer]:
    peer = TransactionPeer(*await asyncio.open_connection(*endpoint(address), limit=1 << 26))
    try:
        await peer.produces()
        yield peer
    finally:
        await peer.leave()


async def produce(peer: TransactionPeer, truth: Truth) -> None:
    """Run transactions one after another; some are not ended."""
    while True:
        body = truth.new_body()
        half = await peer.prepares(body, born=peer.now_ms(), queueId=truth.rng.randrange(QUEUES))
        # The local transaction begins here.
        truth.of[body] = truth.rng.choice((COMMIT, ROLLBACK))
        if truth.rng.random() < 0.8:
            await peer.ends(half, truth.of[body])


async def answer(peer: TransactionPeer, truth: Truth) -> None:
    """Respond to checks; an unacknowledged message has no local transaction."""
    answered = 0
    while True:
        questions = [one for one in peer.requests if one.code == RequestCode.CHECK_TRANSACTION_STATE]
        for question in questions[answered:]:
            fields = question.ext_fields
            half = Half(fields["msgId"], int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"]))
            half.from_check = True
            known = truth.of.get(decode_record(question.body or b"").body, ROLLBACK)
            await peer.ends_quietly(half, known if truth.rng.random() < 0.8 else UNKNOWN)
        answered = len(questions)
        await asyncio.sleep(0.005)


async def delivered(peer: TransactionPeer) -> list[bytes]:
    found: list[bytes] = []
    for queue_id in range(QUEUES):
        offset = 0
        while (result := await peer.pulls(offset, queue_id=queue_id)).code != ResponseCode.PULL_NOT_FOUND:
            if result.code == ResponseCode.TOPIC_NOT_EXIST:
                break
            found += [record.body for record in pulled(result)]
            offset = int(result.ext_fields["nextBeginOffset"])
    return found


async def live(server: ServerProcess, address: str, truth: Truth, messages: int) -> None:
    """Run producers until so many more transactions began; then kill the broker."""
    wanted = len(truth.of) + messages
    async with producing_at(address) as peer:
        tasks = [asyncio.create_task(produce(peer, truth)) for _ in range(PRODUCERS)]
        tasks.append(asyncio.create_task(answer(peer, truth)))

        async def enough() -> None:
            while len(truth.of) < wanted:  # noqa: ASYNC110 - the producers know nothing of it
                await asyncio.sleep(0.001)

        enough_came = asyncio.create_task(enough())
        done, _ = await asyncio.wait([enough_came, *tasks], return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        assert done == {enough_came}, [task.exception() for task in done]
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL
        # Responses sent before the kill are still in flight.
        await asyncio.wait([peer._listening], timeout=PATIENCE)
        for _ in range(5):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | ConnectionError) for end in ends), ends


async def settled(peer: TransactionPeer, truth: Truth) -> list[bytes]:
    """Delivered bodies, once every commit is delivered."""
    answering = asyncio.create_task(answer(peer, truth))
    try:
        async with asyncio.timeout(PATIENCE):
            while not truth.committed() <= set(found := await delivered(peer)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    return found


async def test_no_commit_is_lost_and_no_uncommitted_message_is_delivered(tmp_path: Path) -> None:
    truth = Truth(5)
    for _ in range(LIVES):
        async with broker_process(tmp_path) as (server, address):
            await live(server, address, truth, truth.rng.choice((30, 150, 300)))
    async with broker_process(tmp_path) as (server, address), producing_at(address) as peer:
        found = await settled(peer, truth)
        assert set(found) == truth.committed()
        assert await server.stopped() == 0
    assert len(truth.of) > 30 * LIVES
    async with broker_process(tmp_path) as (server, address), producing_at(address) as peer:
        again = await settled(peer, truth)
        assert set(again) == truth.committed()
        assert await server.stopped() == 0
