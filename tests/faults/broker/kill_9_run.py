"""Kill -9 run: kills a broker process repeatedly under messages of every kind and with new topics.

A ledger records what the broker has acknowledged. At the end all of it must be present: plain and batched messages
at their offsets, delayed and timer messages and commits in their topics, unacked popped messages redelivered; and
nothing of deleted topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode
from peers.ports import endpoint
from support.broker.pop_harness import Popper
from support.broker.requests import pulled, send_request
from support.broker.transaction_harness import COMMIT, TransactionPeer
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq
from support.remoting_harness import HOST, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from orbitmq.protocol.command.command import Command

WORKERS = 6
"""Concurrent producers."""
GROUP = "poppers"
INVISIBLE_MS = 1000
SETTINGS = (
    "messageDelayLevel=1s 2s",
    "flushConsumerOffsetInterval=20",
    "flushIntervalConsumeQueue=50",
    "flushConsumeQueueThoroughInterval=200",
    "transactionTimeOut=600000",
    "reviveInterval=50",
    "brokerName=broker-a",
    "listenPort=0",
    f"bindAddress={HOST}",
)

FULLEST = {"plain": 32_650, "batch": 32_700, "delay": 32_500, "timed": 31_500, "half": 31_500, "pop": 31_500}
"""Property sizes of the fullest messages, by kind. What a broker refuses it has not acknowledged."""


class Peer(Popper, TransactionPeer):
    """A client that sends every kind of message."""


class Ledger:
    """Record of everything that the broker has acknowledged."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.number = 0
        self.life = 0
        self.placed: dict[tuple[str, int, int], bytes] = {}
        """Bodies by topic, queue and offset."""
        self.coming: dict[str, set[bytes]] = {}
        """By topic, bodies of messages that reach their queue later."""
        self.to_pop: set[bytes] = set()
        """Bodies of messages that the consumer has not acked."""
        self.settled: set[bytes] = set()
        self.deleted: dict[str, set[bytes]] = {}
        """By topic, bodies that must not be delivered any more."""
        self.acknowledged = 0

    def body(self) -> bytes:
        self.number += 1
        return b"%d:" % self.number + self.rng.randbytes(self.rng.choice((0, 20, 300, 2000)))

    def topic(self, kind: str) -> str:
        """One of a few topics of this run, or a new one: its first message creates it."""
        if self.rng.random() < 0.3:
            return f"{kind}-{self.life}-new-{self.number}"
        return f"{kind}-{self.life}-{self.rng.randrange(8)}"

    def properties(self, kind: str, **own: str) -> dict[str, str]:
        own = {"UNIQ_KEY": f"K{self.number}", **own}
        if self.rng.random() < 0.15:
            used = len(encode({**own, "full": ""}))
            own["full"] = "p" * (FULLEST[kind] - used)
        return own


@contextlib.asynccontextmanager
async def broker_process(home: Path, flush: str) -> AsyncIterator[tuple[ServerProcess, str]]:
    async with starting_broker(home, flush) as server:
        yield server, await server.says(r"listens on (\S+),")


@contextlib.asynccontextmanager
async def starting_broker(home: Path, flush: str) -> AsyncIterator[ServerProcess]:
    conf = home / "broker.conf"
    conf.write_text(SMALL_FILES + "\n".join((*SETTINGS, f"flushDiskType={flush}")) + "\n")
    async with orbitmq(home, "broker", "-c", conf) as server:
        yield server


@contextlib.asynccontextmanager
async def talking_at(address: str) -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection(*endpoint(address), limit=1 << 26))
    try:
        yield peer
    finally:
        await peer.leave()


# Client actions


async def send_plain(peer: Peer, ledger: Ledger) -> None:
    topic, body = ledger.topic("plain"), ledger.body()
    answer = await peer.sends(body, topic, ledger.properties("plain"), queueId=ledger.rng.randrange(4))
    if is_taken(answer):
        place = topic, int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
        assert place not in ledger.placed, "two messages were given one place"
        ledger.placed[place] = body


async def send_batch(peer: Peer, ledger: Ledger) -> None:
    topic, count = ledger.topic("batch"), ledger.rng.randrange(1, 5)
    items = [(0, ledger.body(), encode(ledger.properties("batch"))) for _ in range(count)]
    request = send_request(encode_batch(items), topic, code=RequestCode.SEND_BATCH_MESSAGE)
    answer = await peer.says(request)
    if is_taken(answer):
        first = int(answer.ext_fields["queueOffset"])
        for number, (_, body, _) in enumerate(items):
            ledger.placed[topic, 0, first + number] = body


async def send_delayed(peer: Peer, ledger: Ledger) -> None:
    topic, body = ledger.topic("delay"), ledger.body()
    level = ledger.rng.choice(("1", "2"))
    if is_taken(await peer.sends(body, topic, ledger.properties("delay", DELAY=level))):
        ledger.coming.setdefault(topic, set()).add(body)


async def send_timed(peer: Peer, ledger: Ledger) -> None:
    topic, body = ledger.topic("timed"), ledger.body()
    due = peer.now_ms() + ledger.rng.randrange(50, 3000)
    if is_taken(await peer.sends(body, topic, ledger.properties("timed", TIMER_DELIVER_MS=str(due)))):
        ledger.coming.setdefault(topic, set()).add(body)


async def commit_transaction(peer: Peer, ledger: Ledger) -> None:
    topic, body = ledger.topic("half"), ledger.body()
    properties = ledger.properties("half")
    del properties["UNIQ_KEY"]  # set by the peer
    half = await peer.prepares(body, properties, topic=topic, born=peer.now_ms())
    answer = await peer.ends(half, COMMIT, topic=topic)
    if is_taken(answer):
        ledger.coming.setdefault(topic, set()).add(body)


async def pop_some(peer: Peer, ledger: Ledger) -> None:
    """Send to a popped topic, pop, and ack some messages."""
    topic, body = f"pop-{ledger.rng.randrange(3)}", ledger.body()
    if is_taken(await peer.sends(body, topic, ledger.properties("pop"))):
        ledger.to_pop.add(body)
    for got in await peer.gets(topic, GROUP, most=4, invisible_ms=INVISIBLE_MS):
        if ledger.rng.random() < 0.5:
            # The message is consumed, whatever the outcome of the ack.
            ledger.settled.add(got.body)
            await peer.acks(got)


async def delete_and_send(peer: Peer, ledger: Ledger) -> None:
    """Fill a topic, delete it, and perhaps create it again by a send."""
    ledger.number += 1
    topic = f"doomed-{ledger.number}"
    old = {ledger.body() for _ in range(3)}
    for body in old:
        await peer.stores(body, topic, queueId=1)
    answer = await peer.asks(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    ledger.deleted[topic] = old
    if ledger.rng.random() < 0.7:
        body = ledger.body()
        if is_taken(await peer.sends(body, topic)):
            ledger.placed[topic, 0, 0] = body


KINDS: tuple[tuple[Callable[[Peer, Ledger], Awaitable[None]], int], ...] = (
    (send_plain, 10), (send_batch, 4), (send_delayed, 3), (send_timed, 3), (commit_transaction, 3), (pop_some, 4),
    (delete_and_send, 1),
)  # fmt: skip


def is_taken(answer: Command) -> bool:
    """True if a message was acknowledged. Refusals of too full properties are expected."""
    if answer.code == ResponseCode.MESSAGE_ILLEGAL:
        return False
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return True


async def work(peer: Peer, ledger: Ledger) -> None:
    steps, weights = zip(*KINDS, strict=True)
    while True:
        await ledger.rng.choices(steps, weights)[0](peer, ledger)
        ledger.acknowledged += 1


async def live_until_killed(server: ServerProcess, address: str, ledger: Ledger, steps: int) -> None:
    """Run clients until ``steps`` more steps are done; then kill the broker."""
    ledger.life += 1
    wanted = ledger.acknowledged + steps
    async with talking_at(address) as peer:
        await peer.produces()
        tasks = [asyncio.create_task(work(peer, ledger)) for _ in range(WORKERS)]
        async with asyncio.timeout(PATIENCE):
            while ledger.acknowledged < wanted:
                await asyncio.sleep(0.001)
                for task in tasks:
                    if task.done():
                        task.result()
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL
        # Responses sent before the kill may still be in the socket: they are acknowledgements.
        await asyncio.wait([peer._listening], timeout=PATIENCE)
        for _ in range(5):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | ConnectionError) for end in ends), ends


async def kill_in_recovery(home: Path, flush: str, ledger: Ledger, seconds: float) -> None:
    """Start the broker and kill it before it listens, if timing permits."""
    async with starting_broker(home, flush) as server:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds * ledger.rng.uniform(0.5, 1.0)):
                await server.says(r"listens on (\S+),")
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL


async def started_in(home: Path, flush: str) -> float:
    """Duration of a start on this machine, in seconds."""
    began = time.monotonic()
    async with broker_process(home, flush) as (server, _):
        seconds = time.monotonic() - began
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL
    return seconds


# Invariants


async def check(peer: Peer, ledger: Ledger) -> None:
    """Check that everything acknowledged is present, and nothing of deleted topics."""
    topics = {topic for topic, _, _ in ledger.placed} | ledger.coming.keys() | ledger.deleted.keys()
    queues = {(topic, queue_id) for topic, queue_id, _ in ledger.placed}
    queues |= {(topic, 0) for topic in topics} | {(topic, 1) for topic in ledger.deleted}
    async with asyncio.timeout(PATIENCE):
        while True:
            found = {(topic, queue_id): await read(peer, topic, queue_id) for topic, queue_id in sorted(queues)}
            late = {
                topic: missing
                for topic, bodies in ledger.coming.items()
                if (missing := bodies - set(found[topic, 0].values()))
            }
            if not late:
                break
            await asyncio.sleep(0.1)
    lost = {place: body for place, body in ledger.placed.items() if found[place[:2]].get(place[2]) != body}
    assert not lost, f"acknowledged messages are lost: {sorted(lost)[:10]}"
    for topic, old in ledger.deleted.items():
        assert not old & set(found[topic, 1].values()), f"messages of {topic} are back, which was deleted"
    await check_popped(peer, ledger)


async def read(peer: Peer, topic: str, queue_id: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while (answer := await peer.pulls(offset, topic, queue_id=queue_id)).code == ResponseCode.SUCCESS:
        found.update((record.queue_offset, record.body) for record in pulled(answer))
        offset = int(answer.ext_fields["nextBeginOffset"])
    return found


async def check_popped(peer: Peer, ledger: Ledger) -> None:
    """Check that unconsumed messages are redelivered, even if pops of earlier runs hide them for a while."""
    async with asyncio.timeout(PATIENCE):
        while not ledger.to_pop <= ledger.settled:
            for number in range(3):
                for got in await peer.gets(f"pop-{number}", GROUP, invisible_ms=60_000):
                    ledger.settled.add(got.body)
                    await peer.settles(got)
            await asyncio.sleep(0.02)
