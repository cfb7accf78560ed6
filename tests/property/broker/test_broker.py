"""Random client actions and crashes: a queue keeps what was acknowledged, in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.testing import MemoryDisk, PowerCut
from support.broker.broker_harness import running_broker
from support.broker.requests import HOLD_MS, TOPIC, Talker, pull_request, pulled, send_request, talking_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.broker import Broker

QUEUES = 2
SETTINGS: dict[str, Any] = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 200,
    "maxIndexNum": 100,
    "maxHashSlotNum": 50,
    "enablePropertyFilter": "true",
}

queues = st.integers(0, QUEUES - 1)
steps = st.one_of(
    st.tuples(st.just("send"), queues, st.integers(1, 6)),
    st.tuples(st.just("batch"), queues, st.integers(1, 5)),
    st.tuples(st.just("hold"), queues, st.sampled_from(["*", "even"])),
    st.tuples(st.just("pull"), queues, st.integers(0, 10)),
    st.tuples(st.just("refused"), queues, st.just(0)),
    st.tuples(st.just("sql"), queues, st.integers(0, 10)),
)
lives = st.lists(
    st.tuples(st.lists(steps, min_size=1, max_size=8), st.sampled_from(["stop", "power cut", "cut in a send"])),
    min_size=1,
    max_size=3,
)


class Model:
    """The acknowledged messages of each queue."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[int, bytes]] = defaultdict(dict)
        """Bodies by queue and offset."""
        self.number = 0

    def bodies(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            self.number += 1
            yield b"%d" % self.number * 50

    def note(self, queue_id: int, offset: int, body: bytes) -> None:
        assert offset not in self.acknowledged[queue_id], "two messages were given one offset"
        self.acknowledged[queue_id][offset] = body


def said(body: bytes) -> dict[str, str]:
    return {"TAGS": "even" if len(body) % 2 == 0 else "odd", "length": str(len(body))}


async def send(client: Talker, model: Model, queue_id: int, count: int) -> None:
    """Send several messages concurrently, as producers do."""
    posted = [
        (client.posts(send_request(body, properties=said(body), queueId=queue_id)), body)
        for body in model.bodies(count)
    ]
    for opaque, body in posted:
        answer = await client.answer_to(opaque)
        assert answer.code == ResponseCode.SUCCESS
        model.note(queue_id, int(answer.ext_fields["queueOffset"]), body)


async def send_batch(client: Talker, model: Model, queue_id: int, count: int) -> None:
    bodies = list(model.bodies(count))
    body = encode_batch([(0, one, b"TAGS\x01even\x02") for one in bodies])
    answer = await client.stores(body, code=RequestCode.SEND_BATCH_MESSAGE, queueId=queue_id)
    for number, one in enumerate(bodies):
        model.note(queue_id, int(answer.ext_fields["queueOffset"]) + number, one)


async def check_pull(client: Talker, model: Model, queue_id: int, offset: int, **more: Any) -> None:
    """Check that a pull returns what was acknowledged at its offset."""
    answer = await client.pulls(offset, queue_id=queue_id, **more)
    if answer.code == ResponseCode.SUCCESS:
        for record in pulled(answer):
            assert record.queue_id == queue_id
            assert model.acknowledged[queue_id].get(record.queue_offset, record.body) == record.body


async def check_all(client: Talker, model: Model) -> None:
    """Check that a full read returns everything acknowledged, each at its offset and once.

    Messages that were not acknowledged at a power failure may be present or not.
    """
    for queue_id in range(QUEUES):
        found: dict[int, bytes] = {}
        offset = 0
        while (answer := await client.pulls(offset, queue_id=queue_id)).code != ResponseCode.PULL_NOT_FOUND:
            if answer.code == ResponseCode.PULL_OFFSET_MOVED and offset == 0:
                # Of the first messages, not acknowledged, a power failure took the earlier ones.
                offset = int(answer.ext_fields["nextBeginOffset"])
                assert offset > 0
                continue
            for record in pulled(answer):
                assert record.queue_offset >= offset
                offset = record.queue_offset + 1
                found[record.queue_offset] = record.body
            assert int(answer.ext_fields["nextBeginOffset"]) >= offset
            offset = int(answer.ext_fields["nextBeginOffset"])
        known = model.acknowledged[queue_id]
        assert {number: found.get(number) for number in known} == known
        assert len(set(found.values())) == len(found)


async def live(broker: Broker, model: Model, life: list[tuple[str, int, Any]]) -> None:
    async with talking_to(broker) as client:
        for what, queue_id, more in life:
            if what == "send":
                await send(client, model, queue_id, more)
            elif what == "batch":
                await send_batch(client, model, queue_id, more)
            elif what == "hold":
                end = broker.store.max_offset(TOPIC, queue_id)
                client.posts(pull_request(end, queue_id=queue_id, tags=more, hold_ms=HOLD_MS))
            elif what == "refused":
                assert (await client.sends(b"", queueId=queue_id)).code != ResponseCode.SUCCESS
            elif what == "sql":
                await check_pull(client, model, queue_id, more, tags="length > 60", expressionType="SQL92")
            else:
                await check_pull(client, model, queue_id, more)
        await check_all(client, model)


async def run(story: list[tuple[list[tuple[str, int, Any]], str]], seed: int) -> None:
    disk, model = MemoryDisk(seed), Model()
    for life, end in story:
        with contextlib.suppress(PowerCut):
            async with running_broker(disk, **SETTINGS) as broker:
                async with talking_to(broker) as client:
                    await client.stores(topic=TOPIC, body=b"other", queueId=3)
                    await check_all(client, model)
                await live(broker, model, life)
                if end == "cut in a send":
                    async with talking_to(broker) as client:
                        client.send(*(send_request(body).encode() for body in model.bodies(3)))
                        await client.pass_time()
                if end != "stop":
                    disk.power_cut()
        if end != "stop":
            disk = disk.power_cut()
    async with running_broker(disk, **SETTINGS) as broker, talking_to(broker) as client:
        await check_all(client, model)


@settings(max_examples=40, deadline=None)
@given(lives, st.integers(0, 1000))
def test_nothing_acknowledged_is_lost_or_reordered(
    story: list[tuple[list[tuple[str, int, Any]], str]], seed: int
) -> None:
    asyncio.run(run(story, seed))
