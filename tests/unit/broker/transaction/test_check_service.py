"""Transaction checks: when producers get a check, its content, the limits, and the persisted progress."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.deferred.record_copy import decode_for_append
from orbitmq.broker.transaction import check_service as transaction_check
from orbitmq.broker.transaction import half_state as transaction_ledger
from orbitmq.broker.transaction.half_state import COMMITTED, ENDED, PENDING, HalfQueueState
from orbitmq.protocol.codes import RequestCode
from orbitmq.store import LocalDisk, StoredMessage
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.broker.requests import TOPIC, properties_of, stored
from support.broker.transaction_harness import (
    BY_HAND,
    COMMIT,
    GIVEN_UP,
    GROUP,
    HALF,
    OPS,
    ROLLBACK,
    TIMEOUT,
    UNKNOWN,
    Half,
    Scene,
    producing_to,
    transaction_scene,
)
from support.remoting_harness import eventually
from support.store import golden

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.protocol.message.record import Record

IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


async def ended(scene: Scene, *halves: Half, how: int = COMMIT) -> None:
    for half in halves:
        answer = await scene.producer.ends(half, how)
        assert answer.code == 0, answer.remark


# Checks


async def test_a_check_carries_the_message_as_its_consumers_would_get_it() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(b"paid?", {"KEYS": "k"}, queueId=3, flag=9)
        await scene.check()
        question = await scene.producer.questioned()

        first, copy = stored(scene.broker, HALF)
        assert question.key == half.key
        assert (question.queue_offset, question.physical) == (1, copy.physical_offset)
        asked = question.record
        assert asked is not None
        assert (asked.topic, asked.queue_id, asked.body, asked.flag) == (TOPIC, 3, b"paid?", 9)
        assert (asked.queue_offset, asked.physical_offset) == (1, copy.physical_offset)
        # As captured: the check has the message as it was read, and a copy is appended.
        assert (asked.store_timestamp, copy.store_timestamp) == (T0, T0 + TIMEOUT + 1)
        assert asked.body_is_intact
        expected = {**properties_of(first), "TRANSACTION_CHECK_TIMES": "1"}
        assert properties_of(copy) == expected
        assert properties_of(asked) == {**expected, "WAIT": "false"}
        assert (copy.body, copy.flag, copy.sys_flag, copy.born_host) == (b"paid?", 9, 0, first.born_host)
        (told,) = [one for one in scene.producer.requests if one.code == RequestCode.CHECK_TRANSACTION_STATE]
        assert told.ext_fields["bname"] == "broker-a"


async def test_the_response_to_a_check_ends_the_transaction() -> None:
    async with transaction_scene() as scene:
        await scene.producer.prepares(b"a")
        await scene.producer.prepares(b"b")
        await scene.check()
        questions = [await scene.producer.questioned() for _ in range(2)]
        await scene.producer.ends_quietly(questions[0])
        await scene.producer.ends_quietly(questions[1], ROLLBACK)

        assert scene.bodies() == [b"a"]
        assert stored(scene.broker)[0].prepared_transaction_offset == questions[0].physical
        assert properties_of(stored(scene.broker)[0])["TRANSACTION_CHECK_TIMES"] == "1"
        for _ in range(3):
            await scene.check()
        assert await scene.producer.questions() == 2
        assert scene.bodies() == [b"a"]
        assert scene.progress()[0] == 4


async def test_an_unknown_outcome_is_checked_again_until_the_limit() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(b"stubborn", {"KEYS": "k"}, flag=3)
        for number in range(15):
            await scene.check(30_000)
            question = await scene.producer.questioned()
            await scene.producer.ends_quietly(question, UNKNOWN)
            assert question.record is not None
            assert properties_of(question.record)["TRANSACTION_CHECK_TIMES"] == str(number + 1)
        assert stored(scene.broker, GIVEN_UP) == []
        await scene.check(30_000)

        assert await scene.producer.questions() == 15
        (given_up,) = stored(scene.broker, GIVEN_UP)
        assert (given_up.body, given_up.flag, given_up.queue_id) == (b"stubborn", 3, 0)
        expected = {**properties_of(stored(scene.broker, HALF)[0]), "TRANSACTION_CHECK_TIMES": "15"}
        assert properties_of(given_up) == expected
        topic = scene.broker.topics.get(GIVEN_UP)
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        assert scene.broker.transactions.counts.of(TOPIC) == 0
        assert scene.bodies() == []
        # Its producer may still find the response.
        await ended(scene, half)
        assert scene.bodies() == [b"stubborn"]


async def test_the_check_limit_can_be_changed_at_run_time() -> None:
    async with transaction_scene(transactionCheckMax=2) as scene:
        await scene.producer.prepares()
        await scene.check()
        scene.broker.settings.broker.transaction_check_max = 1
        await scene.check()
        assert await scene.producer.questions() == 1
        assert len(stored(scene.broker, GIVEN_UP)) == 1


async def test_a_half_message_older_than_the_retention_is_given_up() -> None:
    async with transaction_scene(fileReservedTime=72) as scene:
        await scene.producer.prepares(b"old")
        await scene.check(72 * 3_600_000)
        assert await scene.producer.questions() == 1
        await scene.check(1)
        assert await scene.producer.questions() == 1
        assert scene.bodies(GIVEN_UP) == [b"old"]


async def test_a_young_half_message_and_all_after_it_are_not_checked() -> None:
    async with transaction_scene() as scene:
        await scene.producer.prepares(b"young", born=T0 + 1)
        await scene.producer.prepares(b"old")
        await scene.check(TIMEOUT + 1)
        assert await scene.producer.questions() == 0
        assert scene.progress()[0] <= 0
        await scene.check(1)
        assert await scene.producer.questions() == 2


async def test_a_half_message_born_in_the_future_is_checked_at_once() -> None:
    async with transaction_scene() as scene:
        await scene.producer.prepares(born=T0 + 10_000)
        await scene.check(1)
        assert await scene.producer.questions() == 1


async def test_a_half_message_stored_during_a_pass_is_checked_in_the_next() -> None:
    async with transaction_scene() as scene:
        await scene.producer.prepares(born=T0 - 60_000)
        await scene.check(0)
        assert await scene.producer.questions() == 0
        await scene.check(1)
        assert await scene.producer.questions() == 1


async def test_checks_go_round_robin_over_the_producers_of_the_group() -> None:
    async with (
        transaction_scene() as scene,
        producing_to(scene.broker) as second,
        producing_to(scene.broker) as other,
    ):
        await second.produces()
        await other.produces("PG_other")
        for _ in range(4):
            await scene.producer.prepares()
        await scene.check()

        assert [await one.questions() for one in (scene.producer, second, other)] == [2, 2, 0]
        # Any of them may respond.
        await ended(scene, *[await second.questioned() for _ in range(2)])
        assert len(scene.bodies()) == 2


async def test_a_producer_that_left_gets_no_checks() -> None:
    async with transaction_scene() as scene:
        async with producing_to(scene.broker) as gone:
            await gone.produces("PG_dies")
            await gone.prepares(b"orphan", {"PGROUP": "PG_dies"})
        await eventually(lambda: "PG_dies" not in scene.broker.clients.producers)
        await scene.check()
        async with producing_to(scene.broker) as heir:
            await heir.produces("PG_dies")
            await scene.check()
            question = await heir.questioned()
            question.group = "PG_dies"
            assert question.record is not None
            # Passes without a connected producer count, as in RocketMQ.
            assert properties_of(question.record)["TRANSACTION_CHECK_TIMES"] == "2"
            await heir.ends_quietly(question)
        assert scene.bodies() == [b"orphan"]


async def test_the_broker_checks_periodically() -> None:
    async with transaction_scene(transactionCheckInterval=20) as scene:
        await scene.producer.prepares(b"a")
        scene.clock.advance(TIMEOUT + 1)
        await scene.producer.ends_quietly(await scene.producer.questioned())
        assert scene.bodies() == [b"a"]


# Late ends


async def test_a_late_end_by_the_first_offset_ends_all_copies() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(b"slow")
        await scene.check()
        await scene.check()
        assert await scene.producer.questions() == 2
        await ended(scene, half)
        for _ in range(3):
            await scene.check()

        assert await scene.producer.questions() == 2
        assert scene.bodies() == [b"slow"]
        # The response to an earlier check changes nothing either.
        await ended(scene, await scene.producer.questioned())
        assert scene.bodies() == [b"slow"]


async def test_offsets_of_copies_may_be_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_ledger, "MAX_REMEMBERED", 1)
    async with transaction_scene() as scene:
        first = await scene.producer.prepares(b"first")
        await scene.producer.prepares(b"second")
        await scene.check()
        await ended(scene, first)
        assert scene.bodies() == [b"first"]
        await scene.check()
        # Checked again, which loses nothing.
        assert await scene.producer.questions() == 4


async def test_an_end_counts_before_its_op_message_is_written() -> None:
    async with transaction_scene() as scene:
        await ended(scene, await scene.producer.prepares())
        await scene.check()
        assert stored(scene.broker, OPS) == []
        assert await scene.producer.questions() == 0
        assert scene.progress()[0] == 1


# Postponed checks


async def test_a_producer_may_postpone_checks() -> None:
    async with transaction_scene() as scene:
        await scene.producer.prepares(b"patient", {IMMUNITY: "100"})
        await scene.producer.prepares(b"usual")
        for _ in range(4):
            await scene.check(20_000)
            await scene.producer.questions()
        asked = [one async for one in _asked(scene)]
        assert {one.record.body for one in asked if one.record is not None} == {b"usual"}
        patient = [record for record in stored(scene.broker, HALF) if record.body == b"patient"]
        assert len(patient) == 5
        assert [properties_of(record).get("TRAN_PREPARED_QUEUE_OFFSET") for record in patient] == [None, *"0000"]
        # A postponed check must not count as a check, or the message would be given up without any.
        assert not any("TRANSACTION_CHECK_TIMES" in properties_of(record) for record in patient)
        await scene.check(20_001)
        asked = [one async for one in _asked(scene)]
        last = [one.record for one in asked if one.record is not None and one.record.body == b"patient"]
        assert [properties_of(record)["TRANSACTION_CHECK_TIMES"] for record in last] == ["1"]


async def _asked(scene: Scene) -> Any:
    for _ in range(await scene.producer.questions() - len(scene.producer._given_out)):
        yield await scene.producer.questioned()


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_a_postponed_half_message_is_ended_by_its_first_offset(how: int) -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(b"patient", {IMMUNITY: "100"})
        for _ in range(3):
            await scene.check(10_000)
        await ended(scene, half, how=how)
        for _ in range(10):
            await scene.check(20_000)

        assert await scene.producer.questions() == 0
        assert scene.bodies() == ([b"patient"] if how == COMMIT else [])
        assert scene.progress()[0] == len(stored(scene.broker, HALF)) == 4


async def test_that_end_counts_after_a_restart_too() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with transaction_scene(disk, clock) as scene:
        half = await scene.producer.prepares(b"patient", {IMMUNITY: "100"})
        await scene.check(10_000)
    async with transaction_scene(disk, clock) as scene:
        # The copy was not read in this run yet.
        await ended(scene, half)
        for _ in range(6):
            await scene.check(20_000)
        assert await scene.producer.questions() == 0
        assert scene.bodies() == [b"patient"]


@pytest.mark.parametrize("text", ["x", "-5", "9" * 30])
async def test_a_malformed_immunity_time_is_ignored(text: str) -> None:
    async with transaction_scene() as scene:
        await scene.producer.prepares(properties={IMMUNITY: text})
        await scene.check()
        assert await scene.producer.questions() == 1


# Restarts


async def test_checks_resume_at_the_persisted_progress() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with transaction_scene(disk, clock) as scene:
        for body in (b"committed", b"rolled back", b"pending", b"asked"):
            half = await scene.producer.prepares(body)
            if body == b"committed":
                await ended(scene, half)
            elif body == b"rolled back":
                await ended(scene, half, how=ROLLBACK)
        await scene.check()
        assert await scene.producer.questions() == 2
        assert scene.progress() == (4, 0)
    async with transaction_scene(disk, clock) as scene:
        assert scene.progress() == (4, 1), "the op message was written when the broker stopped"
        await scene.check()
        questions = [await scene.producer.questioned() for _ in range(2)]
        assert [one.record.body for one in questions if one.record] == [b"pending", b"asked"]
        await ended(scene, *questions)
        assert scene.bodies() == [b"committed", b"pending", b"asked"]


async def test_op_messages_of_the_previous_run_are_read() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with transaction_scene(disk, clock, transactionOpMsgMaxSize=1) as scene:
        halves = [await scene.producer.prepares(b"%d" % number) for number in range(30)]
        for half in halves:
            if half.queue_offset != 5:
                await ended(scene, half)
        await scene.broker.transactions.ops.write()
        assert len(stored(scene.broker, OPS)) == 29
    async with transaction_scene(disk, clock) as scene:
        await scene.check()
        question = await scene.producer.questioned()
        assert question.record is not None
        assert question.record.body == b"5"
        assert await scene.producer.questions() == 1
        assert scene.progress() == (30, 29)
        # What the previous run ended stays ended.
        await ended(scene, question)
        await scene.check()
        assert sorted(map(int, scene.bodies())) == list(range(30))


async def test_op_messages_for_half_messages_lost_in_a_power_failure_are_ignored() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with transaction_scene(disk, clock) as scene:
        await ended(scene, await scene.producer.prepares(b"0"))
        scene.broker.transactions.ops.add(0, [1, 2])
    async with transaction_scene(disk, clock) as scene:
        await scene.producer.prepares(b"1")
        await scene.check()
        assert (await scene.producer.questioned()).queue_offset == 2


async def test_progress_is_persisted_after_the_flush_that_covers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with transaction_scene(flushIntervalCommitLog=10**6) as scene:
        await scene.producer.prepares()
        before = scene.broker.store.log.flushed
        committed = scene.broker.offsets.commit
        flushed_at_commit: list[bool] = []

        def commit(*args: Any) -> bool:
            flushed_at_commit.append(scene.broker.store.log.flushed == scene.broker.store.log.end)
            return committed(*args)

        monkeypatch.setattr(scene.broker.offsets, "commit", commit)
        await scene.check()
        assert flushed_at_commit == [True, True]
        assert scene.broker.store.log.flushed > before


# A store of Apache RocketMQ


async def test_half_messages_in_a_store_of_apache_are_ended(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    settings: dict[str, Any] = {
        **golden.config("basic"),
        "storePathRootDir": root,
        "fileReservedTime": 10**6,
        **BY_HAND,
    }
    del settings["listenPort"]
    clock = ManualClock(1_794_773_700_000)
    async with running_broker(LocalDisk(), clock, **settings) as broker, producing_to(broker) as producer:
        scene = Scene(broker, clock, broker.disk, producer)
        assert scene.progress() == (11, 2)
        assert broker.transactions.counts.of("TopicTx") == 1
        before = {queue_id: scene.bodies("TopicTx", queue_id) for queue_id in range(2)}
        await producer.produces("pg_tx")
        await scene.check()

        question = await producer.questioned()
        assert await producer.questions() == 1
        record = question.record
        assert record is not None
        assert (record.topic, record.queue_id, record.body) == ("TopicTx", 1, b"tx pending")
        assert properties_of(record)["TRANSACTION_CHECK_TIMES"] == "7"
        question.group = "pg_tx"
        await producer.ends_quietly(question)
        after = {queue_id: scene.bodies("TopicTx", queue_id) for queue_id in range(2)}
        assert after == {0: before[0], 1: [*before[1], b"tx pending"]}
        committed = stored(broker, "TopicTx", 1)[-1]
        (apaches,) = [one for one in stored(broker, "TopicTx", 0) if one.body == b"tx committed by check"]
        assert properties_of(committed).keys() == properties_of(apaches).keys()
        assert (committed.sys_flag, apaches.sys_flag) == (8, 8)
        assert broker.transactions.counts.of("TopicTx") == 0
        await scene.check()
        assert scene.progress()[0] == 13
        assert await producer.questions() == 1


# Many half messages


async def test_a_pass_over_many_half_messages_runs_in_slices() -> None:
    many = 3000
    async with transaction_scene(mappedFileSizeCommitLog=1 << 24) as scene:
        broker = scene.broker
        properties = await _sample(scene)
        for _ in range(many):
            broker.store.append(StoredMessage(HALF, 0, b"x" * 20, properties, born_timestamp=T0))
        longest = turns = 0
        scene.clock.advance(TIMEOUT + 1)
        passing = asyncio.create_task(broker.checks.check())
        while not passing.done():
            before = broker.transactions.half_state(0).base
            await asyncio.sleep(0)
            longest = max(longest, broker.transactions.half_state(0).base - before)
            turns += 1
        await passing
        assert longest <= transaction_check.SLICE_HALVES
        assert turns >= many // transaction_check.SLICE_HALVES
        assert broker.transactions.half_state(0).base == many + 1
        assert await scene.producer.questions() == many + 1


async def test_a_pass_over_many_ended_half_messages_reads_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with transaction_scene() as scene:
        sample = await _sample(scene)
        for _ in range(3000):
            scene.broker.store.append(StoredMessage(HALF, 0, b"x", sample, born_timestamp=T0))
        for offset in range(1, 3001):
            scene.broker.transactions.half_state(0).end(offset, COMMITTED)
        looked: list[int] = []

        def look(record: memoryview) -> Record:
            looked.append(1)
            return decode_for_append(record)

        monkeypatch.setattr(transaction_check, "decode_for_append", look)
        await scene.check()
        assert len(looked) == 2, "the sample, and its copy"
        assert scene.broker.transactions.half_state(0).base == 3001


async def test_a_pass_ends_after_a_minute_and_the_next_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with transaction_scene() as scene:
        for _ in range(3 * transaction_check.SLICE_HALVES):
            await scene.producer.prepares()
        turn = scene.broker.checks._run_slice

        def slow_turn(*args: Any) -> Any:
            scene.clock.advance(31_000)
            return turn(*args)

        monkeypatch.setattr(scene.broker.checks, "_run_slice", slow_turn)
        await scene.check()
        assert scene.progress()[0] == 2 * transaction_check.SLICE_HALVES
        await scene.check(0)
        assert scene.progress()[0] >= 3 * transaction_check.SLICE_HALVES


async def test_a_producer_that_does_not_read_gets_a_bounded_number_of_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_check, "WAIT_SECONDS", 0.001)
    async with transaction_scene() as scene:
        for _ in range(3):
            await scene.producer.prepares()
        (connection,) = scene.broker.clients.producers[GROUP]
        connection.pause_writing()
        scene.clock.advance(TIMEOUT + 1)
        passing = asyncio.create_task(scene.broker.checks.check())
        await asyncio.sleep(0.01)
        assert len(stored(scene.broker, HALF)) == 3
        connection.resume_writing()
        await passing
        assert await scene.producer.questions() == 3
        connection.pause_writing()
        scene.clock.advance(TIMEOUT + 1)
        # The wait is bounded: other producers need their checks too.
        await scene.broker.checks.check()
        assert len(stored(scene.broker, HALF)) == 9
        connection.resume_writing()


# Failures


async def test_checks_are_retried_while_the_store_refuses_appends() -> None:
    async with transaction_scene() as scene:
        await scene.producer.prepares()
        scene.broker.store.appender.gate.close("test", "for a test")
        await scene.check()
        assert await scene.producer.questions() == 0
        scene.broker.store.appender.gate.open("test")
        await scene.check()
        assert await scene.producer.questions() == 1


async def test_a_half_message_with_full_properties_is_checked_too() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(properties={"long": "x" * 32_500})
        size = len(stored(scene.broker, HALF)[0].properties)
        await ended(scene, half, how=ROLLBACK)
        await scene.producer.prepares(b"full", {"long": "x" * (32_500 + 32_767 - size)})
        await scene.producer.prepares(b"next")
        await scene.check()
        assert await scene.producer.questions() == 2
        full = await scene.producer.questioned()
        assert full.record is not None
        assert full.record.body == b"full"
        assert properties_of(full.record)["long"] == "x" * (32_500 + 32_767 - size)
        await ended(scene, full)
        assert scene.bodies() == [b"full"]
        assert scene.bodies(GIVEN_UP) == []


async def test_a_half_message_without_properties_is_given_up_at_the_limit() -> None:
    async with transaction_scene(transactionCheckMax=2) as scene:
        scene.broker.store.append(StoredMessage(HALF, 0, b"?", b"", born_timestamp=T0))
        for _ in range(3):
            await scene.check()
        assert await scene.producer.questions() == 0
        assert scene.bodies(GIVEN_UP) == [b"?"]


async def test_all_queues_of_half_messages_are_checked() -> None:
    async with transaction_scene() as scene:
        half = await _sample(scene)
        topic = scene.broker.topics.get(HALF)
        assert topic is not None
        topic.read_queue_nums = 2
        scene.broker.store.append(StoredMessage(HALF, 1, b"second", half, born_timestamp=T0))
        await scene.check()
        questions = [await scene.producer.questioned() for _ in range(2)]
        assert {one.record.body for one in questions if one.record} == {b"hello", b"second"}
        await ended(scene, *questions)
        await scene.broker.transactions.ops.write()
        assert scene.bodies(OPS, 0) == [b"0,1,"] or scene.bodies(OPS, 0) == [b"1,"]
        assert scene.bodies(OPS, 1) == [b"1,"]


async def _sample(scene: Scene) -> bytes:
    """The properties of a half message that was sent."""
    await scene.producer.prepares()
    return stored(scene.broker, HALF)[-1].properties


# Half state


def test_the_half_state_finds_the_first_pending_half_message() -> None:
    half_state = HalfQueueState(100)
    for offset in (100, 101, 103):
        half_state.end(offset, COMMITTED)
    half_state.pass_ended()
    assert half_state.base == 102
    assert [half_state.state(offset) for offset in (101, 102, 103, 104)] == [PENDING, PENDING, COMMITTED, PENDING]
    half_state.end(102, ENDED)
    half_state.pass_ended()
    assert half_state.base == 104
    half_state.pass_ended()
    assert half_state.base == 104


def test_the_half_state_frees_memory_before_its_base() -> None:
    half_state = HalfQueueState(0)
    for offset in range(300_000):
        half_state.end(offset, COMMITTED)
        half_state.pass_over(offset + 1)
    assert len(half_state._marks) < 2 * transaction_ledger.TRIM
    half_state.end(300_005, COMMITTED)
    assert half_state.state(300_005) == COMMITTED
    assert half_state.base == 300_000


def test_the_half_state_follows_the_copies_of_a_half_message() -> None:
    half_state = HalfQueueState(0)
    half_state.put_back(3, 10)
    half_state.put_back(10, 17)
    assert half_state.offsets_of(3) == [3, 10, 17]
    assert half_state.offsets_of(10) == [10, 17]
    assert half_state.offsets_of(17) == [17]
