"""Queues and counters that the kernel reads and changes: what it does to them, and what if it cannot."""

from __future__ import annotations

import asyncio

import pytest

from broker_ends import running_broker
from kernel_lives import plain_send
from orbitmq.broker.stats_samples import Counter
from orbitmq.kernel import Count, QueueEnd, SendRuns, ends
from orbitmq.store.consume_queue import ConsumeQueue
from remoting_ends import HOST

FIELDS = {"end": 1, "next_offset": 2, "max_physical": 3, "min_offset": 4, "tail_start": 5, "is_queued": True}

needs_kernel = pytest.mark.skipif(SendRuns is None, reason="the compiled kernel was not built: no C compiler")


@pytest.mark.parametrize("kind", [QueueEnd, ends.QueueEnd])
def test_the_end_of_a_queue_holds_what_it_is_given(kind: type[QueueEnd]) -> None:
    end = kind()
    end.tail = tail = bytearray(b"ab")
    for name, value in FIELDS.items():
        setattr(end, name, value)

    assert {name: getattr(end, name) for name in FIELDS} == FIELDS
    assert end.tail is tail


@pytest.mark.parametrize("kind", [Count, ends.Count])
def test_a_count_holds_what_it_is_given(kind: type[Count]) -> None:
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


@needs_kernel
async def test_what_the_kernel_stores_is_in_the_queue_and_counted() -> None:
    async with running_broker(autoCreateTopicEnable="true") as broker:
        for _ in range(3):
            await ask(broker.port, plain_send("orders", 0) * 2)
        queue = broker.store.queues.find("orders", 0)
        counter = broker.stats.put_counter("orders", 0)

        assert isinstance(queue, ConsumeQueue)
        assert (queue.end, queue.next_offset, len(queue.tail), queue.is_queued) == (6, 6, 120, True)
        assert queue.max_physical == broker.store.log.end
        assert queue in broker.store.dispatcher.unwritten
        assert isinstance(counter, Counter)
        assert (counter.times, counter.nums, counter.size) == (6, 6, broker.store.log.end)
        assert broker.stats.puts.nums == 6


@needs_kernel
async def test_a_counter_that_was_dropped_is_used_no_more() -> None:
    async with running_broker(autoCreateTopicEnable="true") as broker:
        for _ in range(3):
            await ask(broker.port, plain_send("orders", 0))
        broker.stats.forget_topic("orders")
        await ask(broker.port, plain_send("orders", 0))

        assert broker.stats.put_counter("orders", 0).nums == 1
        assert broker.stats.puts.nums == 4


@needs_kernel
async def test_if_a_queue_cannot_take_its_units_nothing_is_stored() -> None:
    async with running_broker(autoCreateTopicEnable="true") as broker:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        for _ in range(3):
            await ask(broker.port, plain_send("orders", 0) + plain_send("orders", 1))
        queues = [broker.store.queues.get("orders", queue_id) for queue_id in range(2)]
        end = broker.store.log.end
        held = memoryview(queues[1].tail)
        refused = await ask(broker.port, plain_send("orders", 0) + plain_send("orders", 1))

        assert refused == b""
        assert broker.store.log.end == end
        assert [(queue.end, len(queue.tail)) for queue in queues] == [(3, 60), (3, 60)]

        held.release()
        assert b'"queueOffset":"3"' in await ask(broker.port, plain_send("orders", 0) + plain_send("orders", 1))
        assert [broker.store.get("orders", queue_id, 0).count for queue_id in range(2)] == [4, 4]
