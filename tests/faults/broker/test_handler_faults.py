"""Message handlers that are slow, raise or hang: their messages are redelivered, and other messages are not
delayed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from faults.client.load import check_at_least_once
from support.client.consumer_harness import GROUP, TOPIC, Inbox, Shop, consuming, shop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.consumer.process_queue import ProcessQueue
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.push.consumer import Consumer


def windows(consumer: Consumer) -> list[ProcessQueue]:
    return list(consumer._running().queues.process_queues)


@pytest.mark.parametrize(
    ("option", "most", "measured", "step"),
    [
        ("pull_threshold_for_queue", 40, lambda queue: len(queue.messages), 16),
        ("pull_threshold_size_for_queue", 1, lambda queue: queue.size / (1 << 20), 0.3),
        ("consume_concurrently_max_span", 40, lambda queue: queue.span, 16),
    ],
)
async def test_a_slow_consumer_holds_no_more_than_it_is_allowed(
    option: str, most: int, measured: Callable[[ProcessQueue], float], step: float
) -> None:
    """One pull may exceed the limit by its own messages (``step``), but not by more."""
    inbox, started, gate = Inbox(), asyncio.Event(), asyncio.Event()
    peaks: list[float] = []

    async def slow(message: ReceivedMessage) -> None:
        await started.wait()
        peaks.extend(measured(queue) for queue in windows(consumer) if queue.queue.topic == TOPIC)
        # Where the limit is the offset span, only the first message is slow.
        if option != "consume_concurrently_max_span" or message.queue_offset == 0:
            await gate.wait()
        inbox.take(message)

    options: dict[str, Any] = {
        option: most,
        "pull_batch_size": 16,
        "consume_thread_max": 4,
        "pull_batch_size_in_bytes": 1 << 18,
    }
    async with shop(queues=1) as place:
        for number in range(200):
            await place.send(b"%d:" % number + os.urandom(20_000))
        async with consuming(place, slow, **options) as consumer:
            started.set()
            await eventually(lambda: any(queue.is_full for queue in windows(consumer)))
            gate.set()
            await inbox.has_count(200)
            await place.cluster.wait_until_consumed(GROUP)
        assert most - step <= max(peaks) <= most + step
        assert inbox.repeats == 0
        assert sorted(inbox.bodies) == sorted(place.sent)


async def until_consumed(place: Shop) -> None:
    """Advance time for retries until no message is left."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(TimeoutError):
                await place.cluster.wait_until_consumed(GROUP, timeout=0.2)
                return
            await place.cluster.advance(30)


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
async def test_a_failing_handler_delays_its_messages_only(error: type[BaseException]) -> None:
    done, tried = Inbox(), Inbox()

    def fail_some(message: ReceivedMessage) -> None:
        tried.take(message)
        if message.body.endswith(b"3") and message.reconsume_times < 2:
            raise error("not now")
        done.take(message)

    async with shop() as place, consuming(place, fail_some):
        await place.send_many(50)
        await done.has_all(body for body in place.sent if not body.endswith(b"3"))
        await until_consumed(place)
        assert place.cluster.dead_letters(GROUP) == []
    assert check_at_least_once(place.sent, done.bodies) == 0
    assert tried.repeats == 2 * 5


@pytest.mark.parametrize("kind", ["thread", "coroutine", "coroutine in a function"])
async def test_the_log_has_the_exception_of_a_handler(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: ReceivedMessage) -> None:
        raise ValueError("not now")

    async def fail_on_loop(_: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        raise ValueError("not now")

    def wrapped(message: ReceivedMessage) -> Any:
        return fail_on_loop(message)

    handlers = {"thread": fail, "coroutine": fail_on_loop, "coroutine in a function": wrapped}
    async with shop() as place, consuming(place, handlers[kind]):
        await place.send("a")
        await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
    told = [record for record in caplog.records if record.name == "orbitmq.client" and record.exc_info]
    assert [repr(record.exc_info[1]) for record in told if record.exc_info] == ["ValueError('not now')"]


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
async def test_a_message_whose_handler_hangs_is_redelivered_without_delaying_others(kind: str) -> None:
    inbox, gate = Inbox(), threading.Event()
    hung: list[bytes] = []

    def hang(message: ReceivedMessage) -> None:
        if message.body == b"3" and message.reconsume_times == 0:
            hung.append(message.body)
            gate.wait()
        else:
            inbox.take(message)

    async def hang_on_loop(message: ReceivedMessage) -> None:
        if message.body == b"3" and message.reconsume_times == 0:
            hung.append(message.body)
            await asyncio.get_running_loop().create_future()
        inbox.take(message)

    async with shop() as place:
        handler = hang if kind == "thread" else hang_on_loop
        async with consuming(place, handler, consume_timeout=0.3):
            await place.send_many(20)
            await inbox.has_all(body for body in place.sent if body != b"3")
            await until_consumed(place)
            await inbox.has_all(place.sent)
            gate.set()
        assert hung == [b"3"]
        # The result of a handler that timed out is ignored.
        assert place.committed() == 20


async def test_a_handler_that_never_returns_does_not_keep_a_consumer_from_closing() -> None:
    inbox, gate = Inbox(), threading.Event()
    hung: list[threading.Thread] = []

    def hang(_: ReceivedMessage) -> None:
        hung.append(threading.current_thread())
        gate.wait()

    async with shop() as place:
        async with consuming(place, hang, await_termination_when_shutdown=0.05):
            await place.send("a")
            await eventually(lambda: hung)
        assert hung[0].is_alive()
        async with consuming(place, inbox.take):
            await inbox.has(b"a")
        gate.set()
        await eventually(lambda: not hung[0].is_alive())
