"""Handlers that are called side by side: those that hang, those that wait, and how many there are."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.client.consumer.result import ConsumeResult
from orbitmq.client.consumer.thread_pool import ConsumeThreads, Job
from orbitmq.client.errors import InvalidMessageError
from support.client.consumer_harness import GROUP, TOPIC, Inbox, consuming, shop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage


async def test_coroutines_that_wait_run_at_the_same_time_up_to_the_limit() -> None:
    running, most, release = 0, 0, asyncio.Event()

    async def wait(_: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1

    async with shop() as place:
        await place.send_many(30)
        async with consuming(place, wait, consume_thread_max=8):
            await eventually(lambda: running == 8)
            release.set()
            await place.cluster.wait_until_consumed(GROUP)
    assert most == 8


async def test_messages_overtake_one_that_takes_long_but_the_offset_does_not() -> None:
    inbox, release = Inbox(), asyncio.Event()

    async def wait_at_first(message: ReceivedMessage) -> None:
        if message.body == b"0":
            await release.wait()
        inbox.messages.append(message)

    async with shop(queues=1) as place, consuming(place, wait_at_first) as consumer:
        await place.send_many(20)
        await inbox.has_all(place.sent[1:])
        await consumer.persist_offsets()
        await eventually(lambda: place.cluster.consumer_offsets(GROUP))
        assert place.committed() == 0
        release.set()
        await inbox.has_all(place.sent)
        await eventually(lambda: place.committed() == 20)


async def test_a_coroutine_that_hangs_is_cancelled_and_its_message_retried() -> None:
    inbox, cancelled = Inbox(), asyncio.Event()

    async def hang_first(message: ReceivedMessage) -> None:
        inbox.messages.append(message)
        if message.body == b"0" and message.reconsume_times == 0:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

    async with shop(queues=1) as place, consuming(place, hang_first, consume_timeout=0.1):
        await place.send_many(5)
        await inbox.has_all(place.sent)
        await asyncio.wait_for(cancelled.wait(), 30)
        await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
        await place.cluster.advance(10)
        await eventually(lambda: inbox.bodies.count(b"0") == 2)
        await place.cluster.wait_until_consumed(GROUP)
    assert inbox.repeats == 1


async def test_a_function_that_hangs_keeps_its_thread_and_its_message_is_retried() -> None:
    inbox, release = Inbox(), threading.Event()

    def hang_first(message: ReceivedMessage) -> None:
        inbox.take(message)
        if message.body == b"0" and message.reconsume_times == 0:
            release.wait(30)

    async with shop(queues=1) as place:
        async with consuming(place, hang_first, consume_timeout=0.1, consume_thread_max=2):
            await place.send_many(5)
            await inbox.has_all(place.sent)
            await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
            await place.cluster.advance(10)
            await eventually(lambda: inbox.bodies.count(b"0") == 2)
            await place.cluster.wait_until_consumed(GROUP)
            assert not release.is_set()
            release.set()
        assert place.committed() == 5
    assert inbox.repeats == 1


async def test_closing_does_not_wait_for_ever_for_a_function_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    started, release = threading.Event(), threading.Event()

    def hang(_: ReceivedMessage) -> None:
        started.set()
        release.wait(30)

    async with shop(queues=1) as place:
        async with consuming(place, hang, await_termination_when_shutdown=0.05):
            await place.send("a")
            await eventually(started.is_set)
        assert place.committed() == 0
        assert "has not returned" in caplog.text
        release.set()
        await eventually(lambda: not [one for one in threading.enumerate() if "ConsumeMessage" in one.name])


@pytest.mark.parametrize("error", [SystemExit(1), StopIteration(), KeyboardInterrupt()])
@pytest.mark.parametrize("orderly", [False, True])
async def test_whatever_a_function_raises_ends_neither_its_thread_nor_the_loop(
    error: BaseException, orderly: bool
) -> None:
    inbox = Inbox()

    def fail(message: ReceivedMessage) -> None:
        inbox.take(message)
        if len(inbox.messages) == 1:
            raise error

    async with shop(queues=1) as place, consuming(place, fail, consume_thread_max=1, orderly=orderly):
        await place.send("a", "b")
        await inbox.has(b"a", b"b")
        if not orderly:
            await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))


async def test_a_retried_message_goes_to_the_handler_of_the_topic_it_was_sent_to() -> None:
    first, second = Inbox(), Inbox()

    def failing(inbox: Inbox) -> Any:
        async def handle(message: ReceivedMessage) -> None:
            inbox.messages.append(message)
            if message.reconsume_times == 0:
                raise ValueError("again")

        return handle

    async with shop() as place:
        await place.add_topic("returns")
        consumer = place.consumer()
        consumer.on(TOPIC)(failing(first))
        consumer.on("returns")(failing(second))
        async with consumer:
            await place.send("a", "b")
            await place.send("c", topic="returns")
            await eventually(lambda: len(place.cluster.messages("SCHEDULE_TOPIC_XXXX")) == 3)
            await place.cluster.advance(10)
            await eventually(lambda: len(first.messages) == 4 and len(second.messages) == 2)
            await place.cluster.wait_until_consumed(GROUP)
    assert {message.topic for message in first.messages} == {TOPIC}
    assert {message.topic for message in second.messages} == {"returns"}


async def test_a_retried_message_of_a_topic_that_nobody_handles_any_more_is_not_lost() -> None:
    async def fail(_: ReceivedMessage) -> None:
        raise ValueError("again")

    async with shop(messageDelayLevel="1s 1s 1s 1s") as place:
        await place.add_topic("returns")
        consumer = place.consumer(max_reconsume_times=1)
        consumer.on(TOPIC)(print)
        consumer.on("returns")(fail)
        async with consumer:
            await place.send("a", topic="returns")
            await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
            await consumer.unsubscribe("returns")
            await place.cluster.advance(1)
            await eventually(lambda: place.cluster.dead_letters(GROUP))


def test_a_result_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"delay_level": 19}, {"delay_level": -2}, {"ack_index": -2}):
        with pytest.raises(InvalidMessageError):
            ConsumeResult(succeeded=True, **wrong)
    assert ConsumeResult.success(1).done_of(3) == 2
    assert ConsumeResult.success(9).done_of(3) == 3
    assert ConsumeResult.success(-1).done_of(3) == 0
    assert ConsumeResult.LATER.done_of(3) == 0
    assert ConsumeResult.SUCCESS.done_of(3) == 3


# Threads


async def test_there_are_no_more_threads_than_jobs_and_no_more_than_allowed() -> None:
    threads = ConsumeThreads("test", 3)
    release, settled = threading.Event(), list[object]()

    def settle(_: Job, returned: object, raised: BaseException | None) -> None:
        settled.append(returned or raised)

    def work(number: int) -> int:
        release.wait(30)
        return number

    for number, expected in ((1, 1), (2, 2), (3, 3), (4, 3)):
        threads.submit(Job(work, number, settle))
        assert len(threads._threads) == expected
    await eventually(lambda: len(threads.running) == 3)
    threads.resize(4)
    await eventually(lambda: len(threads.running) == 4)
    release.set()
    await eventually(lambda: len(settled) == 4)
    assert threads.unfinished == 0
    threads.resize(1)
    await eventually(lambda: len(threads._threads) == 1)
    threads.resize(2)
    assert await threads.call(work, 5) == 5
    with pytest.raises(ZeroDivisionError):
        await threads.call(lambda _: 1 // 0, None)
    assert threads.close() == []
    assert sorted(settled) == [1, 2, 3, 4]  # type: ignore[type-var]


async def test_a_message_that_its_broker_does_not_find_again_is_sent_to_the_retry_topic_anew() -> None:
    inbox = Inbox()

    async def fail_first(message: ReceivedMessage) -> None:
        inbox.messages.append(message)
        if message.reconsume_times == 0:
            message.record.physical_offset = 1 << 40
            raise ValueError("again")

    async with shop() as place, consuming(place, fail_first):
        await place.send("a", tags="red", keys="k")
        await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
        await place.cluster.advance(10)
        await inbox.has_count(2)
        await place.cluster.wait_until_consumed(GROUP)
    first, second = inbox.messages
    assert (second.topic, second.tags, second.keys) == (TOPIC, "red", ["k"])
    assert (second.reconsume_times, second.message_id) == (1, first.message_id)


async def test_a_message_can_become_a_dead_letter_by_that_way_too() -> None:
    async def fail(message: ReceivedMessage) -> ConsumeResult:
        message.record.physical_offset = 1 << 40
        return ConsumeResult.later(-1)

    async with shop() as place, consuming(place, fail):
        await place.send("a")
        await eventually(lambda: place.cluster.dead_letters(GROUP))
        (dead,) = place.cluster.dead_letters(GROUP)
    assert (dead.topic, dead.body) == (TOPIC, b"a")


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_handler_whose_own_work_is_cancelled_has_failed_and_nothing_more(orderly: bool) -> None:
    inbox = Inbox()

    async def handle(message: ReceivedMessage) -> None:
        inbox.messages.append(message)
        if len(inbox.messages) == 1:
            work = asyncio.create_task(asyncio.sleep(3600))
            asyncio.get_running_loop().call_soon(work.cancel)
            await work

    async with shop(queues=1) as place, consuming(place, handle, orderly=orderly, consume_thread_max=1):
        await place.send("a", "b")
        await inbox.has(b"a", b"b")
        if not orderly:
            await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
