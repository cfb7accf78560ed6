"""Queues and counters that the kernel reads and changes: what it does to them, and what if it cannot."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.broker.stats.samples import Counter
from orbitmq.native import Counter as NativeCounter
from orbitmq.native import QueueState
from orbitmq.native.python import queue_state
from orbitmq.store.commitlog.scanner import walk
from orbitmq.store.consumequeue.consume_queue import UNIT, ConsumeQueue
from support.broker.broker_harness import running_broker
from support.native.marks import needs_native
from support.native.twin_brokers import plain_send
from support.remoting_harness import HOST

FIELDS = {"end": 1, "next_offset": 2, "max_physical": 3, "min_offset": 4, "tail_start": 5, "is_queued": True}


@pytest.fixture(params=[QueueState, queue_state.QueueState], ids=["native", "python"])
def end(request: pytest.FixtureRequest) -> QueueState:
    made: QueueState = request.param()
    return made


def test_the_end_of_a_queue_holds_what_it_is_given(end: QueueState) -> None:
    for name, value in FIELDS.items():
        setattr(end, name, value)

    assert {name: getattr(end, name) for name in FIELDS} == FIELDS


def test_an_empty_tail_can_be_read_and_shortened(end: QueueState) -> None:
    end.shorten_tail(100)
    end.cut_tail(0)

    assert (end.tail_size, end.tail_bytes(0, 20), end.tail_bytes(40, 60)) == (0, b"", b"")


@pytest.mark.parametrize("step", [20, 60, 1300, 5000])
def test_a_tail_keeps_what_is_put_behind_it_however_long_it_gets(end: QueueState, step: int) -> None:
    expected = b""
    for number in range(40):
        added = bytes((number * 7 + at) % 251 for at in range(step))
        end.add_to_tail(bytearray(added) if number % 2 else added)
        expected += added
        if number % 5 == 4:
            end.shorten_tail(len(expected) // 3)
            expected = expected[-(len(expected) // 3) :]
        if number % 7 == 6:
            end.cut_tail(len(expected) // 2)
            expected = expected[: len(expected) // 2]

        assert end.tail_size == len(expected)
        assert end.tail_bytes(0, end.tail_size) == expected
        assert end.tail_bytes(13, 57) == expected[13:57]
        assert end.tail_bytes(13, 1 << 40) == expected[13:]


def test_the_room_of_a_tail_is_used_again_by_the_next(end: QueueState) -> None:
    for number in range(300):
        other = type(end)()
        other.add_to_tail(bytes([number % 256]) * 4096)
        end.cut_tail(0)
        end.add_to_tail(other.tail_bytes(0, 4096))
        del other

    assert end.tail_bytes(0, 1 << 20) == bytes([299 % 256]) * 4096


@needs_native
def test_a_tail_has_no_negative_size() -> None:
    end = QueueState()
    end.add_to_tail(b"ab")
    for wrong in (lambda: end.shorten_tail(-1), lambda: end.cut_tail(-1), lambda: end.tail_bytes(-1, 1)):
        with pytest.raises(ValueError, match="tail"):
            wrong()

    assert end.tail_bytes(0, 2) == b"ab"


@pytest.mark.parametrize("kind", [NativeCounter, queue_state.Counter])
def test_a_count_holds_what_it_is_given(kind: type[NativeCounter]) -> None:
    count = kind()
    count.times, count.nums, count.size = 1, 1 << 40, 3
    count.nums += 2

    assert (count.times, count.nums, count.size) == (1, (1 << 40) + 2, 3)


async def ask(port: int, data: bytes) -> bytes:
    """What comes back until the server or this side closes."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read(-1)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@needs_native
async def test_what_the_kernel_stores_is_in_the_queue_and_counted() -> None:
    async with running_broker(autoCreateTopicEnable="true") as broker:
        for _ in range(3):
            await ask(broker.port, plain_send("orders", 0) * 2)
        queue = broker.store.queues.find("orders", 0)
        counter = broker.stats.put_counter("orders", 0)

        assert isinstance(queue, ConsumeQueue)
        assert (queue.end, queue.next_offset, queue.tail_size, queue.is_queued) == (6, 6, 120, True)
        assert queue.max_physical == broker.store.log.end
        assert queue in broker.store.dispatcher.unwritten
        assert isinstance(counter, Counter)
        assert (counter.times, counter.nums, counter.size) == (6, 6, broker.store.log.end)
        assert broker.stats.puts.nums == 6


@needs_native
async def test_a_counter_that_was_dropped_is_used_no_more() -> None:
    async with running_broker(autoCreateTopicEnable="true") as broker:
        for _ in range(3):
            await ask(broker.port, plain_send("orders", 0))
        broker.stats.forget_topic("orders")
        await ask(broker.port, plain_send("orders", 0))

        assert broker.stats.put_counter("orders", 0).nums == 1
        assert broker.stats.puts.nums == 4


@needs_native
@pytest.mark.parametrize("is_read", [False, True], ids=["read at the end", "read after each"])
async def test_units_are_in_order_however_many_come_at_a_time(is_read: bool) -> None:
    async with running_broker(autoCreateTopicEnable="true") as broker:
        await ask(broker.port, plain_send("orders", 0))
        queue = broker.store.queues.get("orders", 0)
        # Few are kept apart from the others, so it is these numbers and what follows them that matter.
        counts = (1, 1, 1, 1, 2, 3, 4, 1, 30, 2, 1, 200, 3, 1, 5, 1, 1)
        for count in counts:
            await ask(broker.port, plain_send("orders", 0) * count)
            if is_read:
                assert len(queue.tail_bytes(0, 1 << 20)) == queue.tail_size
        offsets = [offset for offset, _, _ in UNIT.iter_unpack(queue.read(0, queue.end))]

        assert queue.end == 1 + sum(counts)
        assert offsets == [seen.offset for seen in walk(broker.store.log.files, 0, broker.store.log.end)]
