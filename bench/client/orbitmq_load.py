"""A load by OrbitMQ's client, in a process of its own: ``python -m bench.client.orbitmq_load TASK``."""

from __future__ import annotations

import asyncio
import collections
import sys
import time
from typing import TYPE_CHECKING

from bench.client.window import TURN, Window, in_threads, read_task
from orbitmq import Consumer, Message, Producer, aio
from orbitmq.remoting import run

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable

    from bench.client.window import Task
    from orbitmq import Receipt, ReceivedMessage

WARM_UP = 200
"""Messages before the time begins: connections are open and routes are known then."""


def main() -> None:
    task = read_task(sys.argv[1])
    MODES[task.mode](task)


async def _send_asyncio(task: Task) -> None:
    window, body = Window(task), b"x" * task.body

    def done(future: asyncio.Future[Receipt]) -> None:
        error = future.exception()
        if error is None:
            window.add()
        else:
            window.fail(error)

    async with aio.Producer(
        task.address,
        group=task.group,
        enable_backpressure_for_async_mode=True,
        back_pressure_for_async_send_num=task.in_flight,
        auto_batch=task.mode == "send-gathered",
    ) as producer:
        for _ in range(WARM_UP):
            await producer.send(Message(task.topic, body))
        window.open()
        begun = 0
        waiting: collections.deque[asyncio.Future[Receipt]] = collections.deque()
        while window.is_open() and (not task.messages or begun < task.messages):
            for _ in range(TURN):
                await producer.room()
                future = producer.send_nowait(Message(task.topic, body))
                future.add_done_callback(done)
            begun += TURN
            if task.mode == "send-gathered":
                # Messages that wait for a batch take no room yet, so nothing else would hold this loop up.
                waiting.append(future)
                if len(waiting) * TURN > task.in_flight:
                    await asyncio.wait([waiting.popleft()])
    window.close()


def _send_futures(task: Task) -> None:
    window, body = Window(task), b"x" * task.body

    def done(future: concurrent.futures.Future[Receipt]) -> None:
        error = future.exception()
        if error is None:
            window.add()
        else:
            window.fail(error)

    # Back-pressure is on the client's own loop and would not keep this thread from running ahead of it.
    room = _Room(task.in_flight)
    with Producer(task.address, group=task.group) as producer:
        for _ in range(WARM_UP):
            producer.send(Message(task.topic, body))
        window.open()
        while window.is_open():
            room.enter()
            future = producer.send_async(Message(task.topic, body))
            future.add_done_callback(done)
            future.add_done_callback(room.leave)
    window.close()


class _Room:
    """The limit of messages in flight."""

    def __init__(self, count: int) -> None:
        import threading  # noqa: PLC0415 - in one of many modes only

        self._free = threading.Semaphore(count)

    def enter(self) -> None:
        self._free.acquire()

    def leave(self, _: object) -> None:
        self._free.release()


def _send_sync(task: Task) -> None:
    window, body = Window(task), b"x" * task.body
    with Producer(task.address, group=task.group) as producer:

        def send() -> None:
            while window.is_open():
                began = time.perf_counter_ns()
                producer.send(Message(task.topic, body))
                window.latencies.append(time.perf_counter_ns() - began)
                window.add()

        for _ in range(WARM_UP):
            producer.send(Message(task.topic, body))
        window.open()
        in_threads(task.threads, send)
    window.close()


def _send_batches(task: Task) -> None:
    window, body = Window(task), b"x" * task.body
    with Producer(task.address, group=task.group) as producer:
        for _ in range(WARM_UP // 10):
            producer.send_batch([Message(task.topic, body) for _ in range(task.batch)])
        window.open()
        while window.is_open():
            began = time.perf_counter_ns()
            producer.send_batch([Message(task.topic, body) for _ in range(task.batch)])
            window.latencies.append(time.perf_counter_ns() - began)
            window.add(task.batch)
    window.close()


def _consume(task: Task) -> None:
    """All that is in the topic, from the first message on, by a group that was never there."""
    window = Window(task)
    begun = False

    def plain(message: ReceivedMessage) -> None:
        nonlocal begun
        if not begun:
            begun = True
            window.begin_with_first()
        assert len(message.body) == task.body
        window.add()

    async def coroutine(message: ReceivedMessage) -> None:
        plain(message)

    consumer = Consumer(
        task.address,
        group=task.group,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        inline=task.mode == "consume-inline",
        # This is the only consumer, and the rest at the end need not be consumed.
        await_termination_when_shutdown=0,
    )
    consumer.on(task.topic)(coroutine if task.mode == "consume-coroutine" else plain)
    window.open()
    window.end += 30  # for the first message to come
    with consumer:
        window.wait()
        window.close()


MODES: dict[str, Callable[[Task], None]] = {
    "send-asyncio": lambda task: run(_send_asyncio(task)),
    "send-gathered": lambda task: run(_send_asyncio(task)),
    "send-futures": _send_futures,
    "send-sync": _send_sync,
    "send-batches": _send_batches,
    "consume-inline": _consume,
    "consume-threads": _consume,
    "consume-coroutine": _consume,
}

if __name__ == "__main__":
    main()
