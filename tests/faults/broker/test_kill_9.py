"""Kill -9 of a broker process under load, repeatedly: everything acknowledged is present each time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.requests import CONSUMERS, TOPIC, Talker, pulled, talking_at
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq
from support.remoting_harness import HOST, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIVES = int(os.environ.get("ORBITMQ_BROKER_KILLS", "4"))
PRODUCERS = 16
QUEUES = 4
SETTINGS = (
    "flushDiskType=SYNC_FLUSH",
    "flushConsumerOffsetInterval=20",
    "flushIntervalConsumeQueue=50",
    "brokerName=killed",
    "listenPort=0",
    f"bindAddress={HOST}",
)


@contextlib.asynccontextmanager
async def broker_process(home: Path) -> AsyncIterator[tuple[ServerProcess, str]]:
    conf = home / "broker.conf"
    conf.write_text(SMALL_FILES + "\n".join(SETTINGS) + "\n")
    async with orbitmq(home, "broker", "-c", conf) as server:
        yield server, await server.says(r"listens on (\S+),")


class Ledger:
    """Responses of the broker: message offsets, and consumer progress."""

    def __init__(self) -> None:
        self.messages: dict[tuple[int, int], bytes] = {}
        """Bodies by queue and offset."""
        self.consumed: dict[int, int] = dict.fromkeys(range(QUEUES), 0)
        """By queue, the offset up to which the consumer has read, with a commit done or in flight."""
        self.asked: dict[int, int] = {}
        """The committed offsets that the broker reported after its last start."""
        self.number = 0


async def produce(client: Talker, ledger: Ledger, rng: random.Random) -> None:
    while True:
        ledger.number += 1
        body = f"{ledger.number}:".encode() + rng.randbytes(rng.choice((0, 50, 500, 3000)))
        answer = await client.sends(body, queueId=rng.randrange(QUEUES), properties={"TAGS": "t"})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        place = int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
        assert place not in ledger.messages, "two messages were given one place"
        ledger.messages[place] = body


async def consume(client: Talker, ledger: Ledger, queue_id: int) -> None:
    """Read from the committed offset, and commit what was read."""
    offset = ledger.consumed[queue_id]
    while True:
        answer = await client.pulls(offset, queue_id=queue_id, hold_ms=1000 * PATIENCE)
        for record in pulled(answer):
            # It becomes visible when it is as durable as an acknowledgement requires.
            assert ledger.messages.get((queue_id, record.queue_offset), record.body) == record.body
        ledger.consumed[queue_id] = offset = int(answer.ext_fields["nextBeginOffset"])
        await client.asks(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=CONSUMERS, topic=TOPIC, queueId=queue_id, commitOffset=offset,
        )  # fmt: skip


async def committed(client: Talker, queue_id: int) -> int:
    answer = await client.asks(
        RequestCode.QUERY_CONSUMER_OFFSET,
        consumerGroup=CONSUMERS, topic=TOPIC, queueId=queue_id, setZeroIfNotFound=True,
    )  # fmt: skip
    return int(answer.ext_fields.get("offset", 0))


async def check(client: Talker, ledger: Ledger) -> None:
    """Check that acknowledged messages are at their offsets without duplicates, and the group is close to its
    offset."""
    for queue_id in range(QUEUES):
        found: dict[int, bytes] = {}
        offset = 0
        while (answer := await client.pulls(offset, queue_id=queue_id)).code != ResponseCode.PULL_NOT_FOUND:
            found.update((record.queue_offset, record.body) for record in pulled(answer))
            offset = int(answer.ext_fields["nextBeginOffset"])
        known = {place[1]: body for place, body in ledger.messages.items() if place[0] == queue_id}
        assert {number: found.get(number) for number in known} == known
        assert len(set(found.values())) == len(found)
        # Never beyond what was consumed, or messages would be skipped.
        ledger.asked[queue_id], before = await committed(client, queue_id), ledger.asked.get(queue_id, 0)
        assert before <= ledger.asked[queue_id] <= ledger.consumed[queue_id]
        ledger.consumed[queue_id] = ledger.asked[queue_id]


async def live(server: ServerProcess, address: str, ledger: Ledger, rng: random.Random, messages: int) -> None:
    """Run clients until so many more messages are acknowledged; then kill the broker."""
    wanted = len(ledger.messages) + messages
    async with talking_at(address) as producer, talking_at(address) as consumer:
        tasks = [asyncio.create_task(produce(producer, ledger, rng)) for _ in range(PRODUCERS)]
        tasks += [asyncio.create_task(consume(consumer, ledger, queue_id)) for queue_id in range(QUEUES)]

        async def enough() -> None:
            while len(ledger.messages) < wanted:  # noqa: ASYNC110 - the clients know nothing of it
                await asyncio.sleep(0.001)

        enough_came = asyncio.create_task(enough())
        done, _ = await asyncio.wait([enough_came, *tasks], return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        assert done == {enough_came}, [task.exception() for task in done]
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL
        # Responses sent before the kill are still in flight: they are acknowledgements.
        await asyncio.wait([producer._listening, consumer._listening], timeout=PATIENCE)
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | ConnectionError) for end in ends), ends


async def test_no_acknowledged_message_is_lost_and_consumers_resume_at_their_offsets(tmp_path: Path) -> None:
    rng = random.Random(9)
    ledger = Ledger()
    for _ in range(LIVES):
        async with broker_process(tmp_path) as (server, address):
            async with talking_at(address) as client:
                if ledger.messages:
                    await check(client, ledger)
                else:
                    await client.stores(b"first")
                    ledger.messages[0, 0] = b"first"
            await live(server, address, ledger, rng, rng.choice((50, 300, 600)))
        assert (tmp_path / "store" / "abort").exists()
    async with broker_process(tmp_path) as (server, address), talking_at(address) as client:
        await check(client, ledger)
        assert max(ledger.asked.values()) > 0
        await client.stores(b"and on")
        assert await server.stopped() == 0
    assert len(ledger.messages) > 50 * LIVES
    assert not (tmp_path / "store" / "abort").exists()
