"""The window of a queue between what was pulled and what was consumed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.received_message import PulledMessage, pulled_messages
from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.flags import INNER_BATCH, NEED_UNWRAP
from orbitmq.protocol.message.record import encode_record

QUEUE = MessageQueue("orders", "broker-a", 0)
V4, V6 = bytes([127, 0, 0, 1, 0, 0, 42, 159]), bytes(16) + bytes([0, 0, 42, 159])


def record(offset: int, body: bytes = b"body", properties: bytes = b"", **more: Any) -> bytes:
    hosts: dict[str, Any] = {"born_host": V4, "store_host": V4, **more}
    return encode_record(
        topic=b"orders", queue_id=0, body=body, properties=properties, queue_offset=offset, **hosts
    )


def message(offset: int, body: bytes = b"body") -> PulledMessage:
    (made,) = pulled_messages(record(offset, body), "broker-a", "orders", 0)
    return made


def window(*offsets: int, count: int = 1000, size: int = 1 << 20, span: int | None = 2000) -> ProcessQueue:
    queue = ProcessQueue(QUEUE, 0, max_messages=count, max_bytes=size, max_span=span)
    if offsets:
        queue.put([message(offset) for offset in offsets])
        queue.next_offset = offsets[-1] + 1
    return queue


async def test_the_lowest_message_that_is_not_finished_is_what_may_be_committed() -> None:
    queue = window(5, 6, 7, 9)
    for finished, reached in ((6, 5), (9, 5), (5, 7), (7, 10)):
        queue.finish([queue.messages[finished]])
        assert queue.consumed_to == reached
    assert (queue.size, queue.span) == (0, 0)


async def test_what_may_be_committed_never_goes_back_and_never_passes_what_is_not_finished() -> None:
    chance = random.Random(7)
    queue, open_, reached, offset = window(), set[int](), 0, 0
    for _ in range(500):
        if chance.random() < 0.3:
            offsets = range(offset, offset + chance.randrange(1, 9))
            offset = offsets[-1] + 1 + chance.randrange(3)
            queue.put([message(at) for at in offsets])
            queue.next_offset = offset
            open_.update(offsets)
        elif open_:
            done = chance.sample(sorted(open_), min(len(open_), 3))
            queue.finish([queue.messages[at] for at in done])
            open_.difference_update(done)
        assert queue.consumed_to == min(open_, default=offset)
        assert queue.consumed_to >= reached
        reached = queue.consumed_to
        assert queue.size == sum(message.stored_size for message in queue.messages.values())


async def test_finishing_something_twice_counts_once() -> None:
    queue = window(1, 2)
    one = queue.messages[1]
    queue.finish([one])
    queue.finish([one])
    assert queue.size == queue.messages[2].stored_size


@pytest.mark.parametrize(
    ("limits", "offsets"),
    [({"count": 2}, (0, 1, 2)), ({"size": 200}, (0, 1, 2)), ({"span": 10}, (0, 11))],
)
async def test_a_full_window_has_room_again_when_messages_are_finished(
    limits: dict[str, int], offsets: tuple[int, ...]
) -> None:
    queue = window(*offsets, **limits)
    assert queue.is_full
    waiting = asyncio.create_task(queue.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.finish(queue.first(2))
    await asyncio.wait_for(waiting, 30)
    assert not queue.is_full


async def test_the_window_of_an_orderly_queue_may_be_wide() -> None:
    assert not window(0, 100_000, span=None).is_full


async def test_a_lock_counts_from_when_it_was_asked_for_and_not_for_ever() -> None:
    now = asyncio.get_running_loop().time()
    queue = window()
    assert not queue.is_locked
    seen = []
    for asked_at in (now, now - 31, now):
        queue.lock(requested_at=asked_at)
        seen.append(queue.is_locked)
    queue.unlock()
    assert [*seen, queue.is_locked] == [True, False, True, False]


# Messages of pull answers


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("version_2", [False, True])
def test_a_pulled_message_says_the_same_whether_decoded_or_not(born: bytes, store: bytes, version_2: bool) -> None:
    data = record(7, b"the body", b"TAGS\x01red\x02", born_host=born, store_host=store, version_2=version_2)
    for first_decode in (False, True):
        (pulled,) = pulled_messages(data, "broker-a", "orders", 0)
        if first_decode:
            assert pulled.record.queue_offset == 7
        assert (pulled.body, pulled.stored_properties) == (b"the body", b"TAGS\x01red\x02")
        assert (pulled.queue_offset, pulled.tags, pulled.topic) == (7, "red", "orders")
        assert pulled.stored_size == len(data)


def test_items_of_a_batch_are_messages_and_those_before_the_offset_are_left_out() -> None:
    body = encode_batch([(number, b"%d" % number, b"KEYS\x01k\x02") for number in range(4)])
    data = record(10, body, sys_flag=INNER_BATCH | NEED_UNWRAP) + record(14)
    pulled = pulled_messages(data, "broker-a", "orders", 12)
    assert [(one.offset, one.body) for one in pulled] == [(12, b"2"), (13, b"3"), (14, b"body")]


def test_offsets_of_a_static_topic_are_moved() -> None:
    (pulled,) = pulled_messages(record(3), "broker-a", "orders", 0, delta=100)
    assert pulled.queue_offset == 103


@pytest.mark.parametrize("damage", ["cut", "magic", "size", "tail"])
def test_a_damaged_answer_is_a_protocol_error(damage: str) -> None:
    data = bytearray(record(0) + record(1))
    if damage == "cut":
        del data[-1]
    elif damage == "tail":
        data += b"xx"
    elif damage == "magic":
        data[4] ^= 1
    else:
        data[0] = 0x7F
    with pytest.raises(ProtocolError):
        pulled_messages(bytes(data), "broker-a", "orders", 0)


async def test_tools_see_since_when_a_queue_that_has_not_moved_is_assigned() -> None:
    before = SYSTEM_CLOCK.now_ms()
    info = window().info()
    times = {info.last_consume_timestamp, info.last_pull_timestamp, info.last_lock_timestamp}
    assert len(times) == 1
    assert before <= times.pop() <= SYSTEM_CLOCK.now_ms()
