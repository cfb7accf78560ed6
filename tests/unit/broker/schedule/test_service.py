"""Delay levels: deferral, delivery, failures, restarts, and stores of Apache RocketMQ."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.deferred.delivery_loop import MAX_WAIT_MS, SLICE_RECORDS
from orbitmq.broker.deferred.record_copy import decode_for_append
from orbitmq.broker.schedule.service import ScheduleService
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.protocol.bodies import DataVersion, DelayOffsetSerializeWrapper
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import tags_code
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import CRC_PROPERTY
from orbitmq.store import LocalDisk, MessageStore, StoredMessage, SystemClock
from orbitmq.store.config import FlushDiskType, delay_levels
from orbitmq.store.config_tables import DELAY_OFFSETS
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.runtimes import runtime_of
from support.remoting_harness import eventually
from support.store import golden
from support.store.stores import SYNC, T0, TOPIC, open_golden, open_small, read_all, record_at, small_config
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from orbitmq.protocol.message.record import Record

ROOT = "/store"
PARKED = "SCHEDULE_TOPIC_XXXX"
ROOMY: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_index_num": 10_000,
}
DELAYS = delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


class Delays:
    """A store with delayed messages, and a schedule service that runs on demand."""

    def __init__(self, store: MessageStore, disk: MemoryDisk, **settings: Any) -> None:
        self.store = store
        self.disk = disk
        self.clock = cast("ManualClock", store.clock)
        self.stats = BrokerStats(store.clock, "DefaultCluster")
        self.writer = ConfigWriter(disk, store.config.path("config"), self._run_here)
        self.flushes = 0
        self.service = ScheduleService(
            runtime_of(store, self.writer, self.stats, config=BrokerConfig(**settings), flushed=self._flushed)
        )
        self.service.load()

    async def _run_here(self, work: Callable[[], Any]) -> Any:
        return work()

    async def _flushed(self, end: int) -> None:
        self.flushes += 1
        assert self.store.flush() >= end

    def send(self, level: object, body: bytes = b"hello", queue_id: int = 2, **more: Any) -> None:
        """Send a delayed message as the send processor does."""
        parked = self.service.defer(
            encode({"KEYS": "k", "TAGS": "TagA", "DELAY": str(level), "UNIQ_KEY": "u1"}), TOPIC, queue_id
        )
        assert parked is not None
        topic, queue_id, properties = parked
        self.store.append(StoredMessage(topic, queue_id, body, properties, **more))

    def look(self) -> int:
        """Deliver everything that is due; returns the milliseconds until the next slice."""
        now = self.clock.now_ms()
        while True:
            after = self.service.deliver_due() - now
            if after > 0:
                return after

    def wait(self, ms: int) -> int:
        self.clock.advance(ms)
        return self.look()

    @property
    def delivered(self) -> list[Record]:
        return [record for queue_id in range(4) for record in read_all(self.store, TOPIC, queue_id)]

    def bodies(self) -> list[bytes]:
        return [record.body for record in self.delivered]

    async def saved(self) -> DelayOffsetSerializeWrapper:
        """The persisted offsets after a stop of the service."""
        await self.service.stop()
        await self.writer.stop()
        return DELAY_OFFSETS.load(self.disk, self.store.config.path("config"))


@pytest.fixture
def delays() -> Delays:
    disk = MemoryDisk()
    return Delays(open_small(ROOT, disk=disk, **ROOMY), disk)


def open_again(delays: Delays, disk: MemoryDisk | None = None, **settings: Any) -> Delays:
    disk = disk or delays.disk
    return Delays(open_small(ROOT, disk=disk, clock=delays.clock, **ROOMY, **settings), disk)


# Deferral


def test_a_delayed_message_is_stored_in_the_queue_of_its_level(delays: Delays) -> None:
    parked = delays.service.defer(encode({"DELAY": "3", "KEYS": "k"}), TOPIC, 2)
    assert parked is not None
    topic, queue_id, properties = parked
    assert (topic, queue_id) == (PARKED, 2)
    assert parse(properties) == {"DELAY": "3", "KEYS": "k", "REAL_TOPIC": TOPIC, "REAL_QID": "2"}


@pytest.mark.parametrize("level", ["19", "99", "2147483648", "9" * 4000])
def test_a_level_over_the_highest_is_the_highest(delays: Delays, level: str) -> None:
    parked = delays.service.defer(encode({"DELAY": level}), TOPIC, 0)
    assert parked is not None
    assert parked[1] == 17
    assert parse(parked[2])["DELAY"] == "18"


def test_leading_zeros_of_a_level_are_ignored(delays: Delays) -> None:
    delays.send("0" * 5000 + "1", b"zeros")
    delays.send(1, b"plain")
    delays.wait(1000)
    assert delays.bodies() == [b"zeros", b"plain"]


@pytest.mark.parametrize("level", ["0", "-1", "x", "1.5", " 1", "00"])
def test_a_message_without_a_level_is_not_delayed(delays: Delays, level: str) -> None:
    assert delays.service.defer(encode({"DELAY": level}), TOPIC, 0) is None
    assert delays.service.defer(encode({"XDELAY": "1"}), TOPIC, 0) is None


def test_a_level_wins_over_a_timer(delays: Delays) -> None:
    properties = encode({"DELAY": "1", "TIMER_DELIVER_MS": "5", "TIMER_DELAY_SEC": "6", "TIMER_DELAY_MS": "7"})
    parked = delays.service.defer(properties, TOPIC, 0)
    assert parked is not None
    assert parse(parked[2]).keys() == {"DELAY", "REAL_TOPIC", "REAL_QID"}


def test_a_message_cannot_choose_its_real_topic_by_property(delays: Delays) -> None:
    parked = delays.service.defer(encode({"REAL_TOPIC": "Other", "REAL_QID": "9", "DELAY": "1"}), TOPIC, 0)
    assert parked is not None
    assert parse(parked[2]) == {"DELAY": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}


# Delivery


@pytest.mark.parametrize("level", DELAYS)
def test_a_message_is_delivered_after_the_delay_of_its_level_and_not_before(delays: Delays, level: int) -> None:
    delays.send(level)
    delays.look()
    delays.wait(DELAYS[level] - 1)
    assert delays.delivered == []
    delays.wait(1)
    assert delays.bodies() == [b"hello"]
    delays.wait(10_000_000)
    assert delays.bodies() == [b"hello"]


def test_a_message_is_delivered_as_it_was_sent(delays: Delays) -> None:
    host = bytes((10, 1, 2, 3, 0, 0, 4, 5))
    delays.send(1, flag=-5, sys_flag=0x301, born_timestamp=T0 - 9, born_host=host, reconsume_times=4)
    delays.wait(1000)
    (record,) = delays.delivered
    (parked,) = read_all(delays.store, PARKED, 0)
    assert (record.topic, record.queue_id, record.queue_offset) == (TOPIC, 2, 0)
    assert (record.flag, record.sys_flag, record.born_timestamp) == (-5, 0x301, T0 - 9)
    assert (record.born_host, record.reconsume_times, record.body) == (host, 4, b"hello")
    assert record.properties == parked.properties
    assert record.store_timestamp == T0 + 1000
    queue = delays.store.queues.get(TOPIC, 2)
    assert queue.unit(0)[2] == tags_code("TagA")  # type: ignore[index]


def test_a_level_delivers_in_order_and_independently_of_other_levels(delays: Delays) -> None:
    delays.send(2, b"5s")
    delays.send(1, b"1s")
    delays.clock.advance(500)
    delays.send(1, b"1s later")
    delays.wait(600)
    assert delays.bodies() == [b"1s"]
    delays.wait(500)
    assert delays.bodies() == [b"1s", b"1s later"]
    delays.wait(5000)
    assert delays.bodies() == [b"1s", b"1s later", b"5s"]


def test_the_next_slice_runs_when_the_next_message_is_due(delays: Delays) -> None:
    assert delays.look() == MAX_WAIT_MS
    delays.send(1)
    delays.clock.advance(300)
    delays.send(1)
    assert delays.look() == 700
    assert delays.wait(700) == 300
    assert delays.wait(300) == MAX_WAIT_MS


def test_many_due_messages_are_delivered_in_slices(delays: Delays) -> None:
    count = 3 * SLICE_RECORDS + 5
    for number in range(count):
        delays.send(1, b"%d" % number)
    delays.clock.advance(1000)
    turns = 0
    while delays.service.deliver_due() <= delays.clock.now_ms():
        turns += 1
        assert len(delays.delivered) <= turns * SLICE_RECORDS
    assert delays.bodies() == [b"%d" % number for number in range(count)]


def test_large_messages_make_short_slices(delays: Delays) -> None:
    for _ in range(6):
        delays.send(1, bytes(100_000))
    delays.clock.advance(1000)
    delays.service.deliver_due()
    assert len(delays.delivered) == 3
    delays.look()
    assert len(delays.delivered) == 6


def test_a_level_with_many_messages_does_not_delay_other_levels(delays: Delays) -> None:
    for _ in range(10 * SLICE_RECORDS):
        delays.send(1, b"many")
    delays.send(2, b"one", queue_id=3)
    delays.clock.advance(5000)
    for _ in range(2):
        delays.service.deliver_due()
    assert [record.body for record in read_all(delays.store, TOPIC, 3)] == [b"one"]


def test_a_clock_that_is_set_back_delays_no_message_longer_than_its_level() -> None:
    disk = MemoryDisk()
    late = ManualClock(T0 + 3_600_000)
    first = Delays(open_small(ROOT, disk=disk, clock=late, **ROOMY), disk)
    first.send(1)
    first.look()
    first.store.close()
    again = Delays(open_small(ROOT, disk=disk, clock=ManualClock(T0), **ROOMY), disk)
    again.look()
    assert again.bodies() == [b"hello"]


def test_a_clock_that_goes_back_while_it_waits_is_noticed() -> None:
    class SetClock(ManualClock):
        def set(self, now_ms: int) -> None:
            self._now_ms = now_ms

    disk = MemoryDisk()
    clock = SetClock(T0)
    delays = Delays(open_small(ROOT, disk=disk, clock=clock, **ROOMY), disk)
    delays.send(1)
    delays.look()
    clock.set(T0 - 3_600_000)
    delays.look()
    assert delays.bodies() == [b"hello"]


def test_delivery_is_counted(delays: Delays) -> None:
    delays.send(3)
    delays.send(3)
    delays.wait(10_000)
    delays.stats.sample_counters()
    put = delays.stats.view("TOPIC_PUT_NUMS", TOPIC)
    got = delays.stats.view("QUEUE_GET_NUMS", f"{PARKED}@2@SCHEDULE_CONSUMER")
    assert put is not None
    assert got is not None
    assert (put.stats_minute, got.stats_minute) != (None, None)
    assert (delays.stats.puts.nums, delays.stats.gets.nums) == (2, 0)


# Failures


def test_a_refused_message_is_retried_until_there_is_room_again(
    delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    delays.send(1, b"one")
    delays.send(1, b"two")
    delays.store.appender.gate.close("disk", "the disk is full")
    delays.wait(1000)
    delays.wait(1000)
    assert delays.delivered == []
    assert delays.service.offsets == {1: 0}
    assert [record.message for record in caplog.records].count(
        "schedule: delivery of level 1 at offset 0 failed, will retry in 100 ms: the disk is full"
    ) == 1
    delays.store.appender.gate.open("disk")
    delays.wait(100)
    assert delays.bodies() == [b"one", b"two"]


def test_a_full_disk_loses_nothing() -> None:
    disk = MemoryDisk()
    delays = Delays(open_small(ROOT, disk=disk, mapped_file_size_commit_log=4096), disk)
    for number in range(30):
        delays.send(1, b"%d" % number, queue_id=0)
    disk.fail("create", path_contains="commitlog", times=3)
    delays.wait(1000)
    first = len(delays.delivered)
    assert first < 30
    for _ in range(4):
        delays.wait(100)
    assert delays.bodies() == [b"%d" % number for number in range(30)]


def test_a_message_over_a_lowered_limit_is_delivered_and_does_not_delay_others(delays: Delays) -> None:
    delays.send(1, bytes(5000))
    delays.send(1, b"small")
    delays.store.close()
    strict = open_again(delays, max_message_size=1000)
    strict.wait(1000)
    assert strict.bodies() == [bytes(5000), b"small"]


def test_a_message_that_the_store_always_refuses_does_not_delay_others(
    delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    lost = encode({"DELAY": "1", "REAL_TOPIC": "no/topic", "REAL_QID": "0"})
    delays.store.append(StoredMessage(PARKED, 0, b"lost", lost))
    delays.send(1, b"kept")
    delays.wait(1000)
    assert delays.bodies() == [b"kept"]
    assert "schedule: skipped" in caplog.text


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": TOPIC},
        {"REAL_TOPIC": TOPIC, "REAL_QID": "x"},
        {"REAL_TOPIC": TOPIC, "REAL_QID": "-1"},
        {"REAL_TOPIC": TOPIC, "REAL_QID": "2147483648"},
        {"REAL_TOPIC": TOPIC, "REAL_QID": "9" * 30},
        {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
def test_a_message_without_a_valid_real_queue_is_skipped(
    delays: Delays, caplog: pytest.LogCaptureFixture, properties: dict[str, str]
) -> None:
    delays.store.append(StoredMessage(PARKED, 0, b"lost", encode({"DELAY": "1", **properties})))
    delays.send(1, b"kept")
    delays.wait(1000)
    assert delays.bodies() == [b"kept"]
    assert "schedule: skipped" in caplog.text
    assert delays.stats.quarantine.counts == {"schedule": 1}
    assert not delays.store.queues.find("RMQ_SYS_TRANS_HALF_TOPIC", 0)


def test_a_damaged_message_is_skipped(delays: Delays, caplog: pytest.LogCaptureFixture) -> None:
    delays.send(1, b"damaged")
    delays.send(1, b"intact")
    delays.store.close()
    path = f"{ROOT}/commitlog/{0:020d}"
    at = delays.disk.read(path).index(b"damaged")
    delays.disk.pwrite(path, at, b"D")
    again = open_again(delays)
    again.wait(1000)
    assert again.bodies() == [b"intact"]
    assert "schedule: skipped the delayed message at 0: no intact record there" in caplog.text
    assert again.service.offsets == {1: 2}


def test_filler_units_are_skipped(delays: Delays) -> None:
    delays.send(1, b"old")
    queue = delays.store.queues.get(PARKED, 0)
    delays.send(2, b"other")
    other = delays.store.queues.get(PARKED, 1)
    # The number between is missing, as after a damaged log.
    assert queue.put(2, other.max_physical, 300, T0 + 1000)  # type: ignore[call-arg]
    delays.wait(1000)
    assert delays.bodies() == [b"old"]
    assert delays.service.offsets[1] == 3


def test_a_message_is_delivered_after_its_flush() -> None:
    disk = MemoryDisk()
    delays = Delays(open_small(ROOT, disk=disk, **ROOMY, **SYNC), disk)
    delays.send(1)
    assert delays.wait(1000) == 100
    assert delays.service.offsets == {1: 0}
    delays.store.flush()

    async def deliver() -> None:
        delays.wait(100)
        await asyncio.sleep(0)

    asyncio.run(deliver())
    # Only the service triggered the flush that makes it visible.
    assert delays.flushes == 1
    assert delays.bodies() == [b"hello"]


# Restarts


async def test_delivery_resumes_at_the_persisted_offset_after_a_stop(delays: Delays) -> None:
    delays.send(1, b"one")
    delays.send(18, b"far")
    delays.wait(1000)
    saved = await delays.saved()
    assert saved.offset_table == {1: 1, 18: 0}
    delays.send(1, b"two")
    delays.store.close()
    again = open_again(delays)
    assert again.service.offsets == {1: 1, 18: 0}
    again.wait(1000)
    assert again.bodies() == [b"one", b"two"]
    again.wait(7_200_000)
    assert again.bodies() == [b"one", b"two", b"far"]


async def test_messages_that_came_due_during_a_downtime_are_delivered_at_once(delays: Delays) -> None:
    delays.send(5)
    delays.store.close()
    again = open_again(delays)
    again.wait(3_600_000)
    assert again.bodies() == [b"hello"]


def test_a_kill_may_repeat_a_message_and_loses_none(delays: Delays) -> None:
    delays.send(1, b"one")
    delays.wait(1000)
    delays.send(1, b"two")
    after = open_again(delays, delays.disk.kill())
    after.wait(1000)
    assert after.bodies() == [b"one", b"one", b"two"]
    assert after.service.offsets == {1: 2}


async def test_offsets_are_persisted_after_the_flush_that_covers_them(delays: Delays) -> None:
    delays.send(1)
    delays.store.flush()
    delays.wait(1000)
    await delays.saved()
    assert delays.store.log.flushed == delays.store.log.end
    left = delays.disk.power_cut()
    after = open_again(delays, left)
    assert after.service.offsets == {1: 1}
    assert after.bodies() == [b"hello"]


async def test_offsets_are_not_persisted_if_the_flush_fails(
    delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    delays.send(1)
    delays.wait(1000)
    delays.disk.fail("sync", path_contains="commitlog", times=100)
    assert (await delays.saved()).offset_table == {}
    assert "schedule: failed to persist delay offsets" in caplog.text


async def test_offsets_outside_their_queue_are_clamped(delays: Delays) -> None:
    table = DelayOffsetSerializeWrapper({1: 7, 2: 9, 40: 3}, DataVersion(5, 0, T0))
    DELAY_OFFSETS.persist(delays.disk, f"{ROOT}/config", table)
    delays.send(1)
    delays.store.close()
    again = open_again(delays)
    # The queue of level 2 is gone and will begin at 0; level 40 is unknown.
    assert again.service.offsets == {1: 1, 2: 0, 40: 3}
    again.send(2, b"new")
    again.wait(5000)
    assert again.bodies() == [b"new"]


async def test_a_level_skips_expired_messages() -> None:
    disk = MemoryDisk()
    delays = Delays(open_small(ROOT, disk=disk), disk)
    for number in range(40):
        delays.send(1, b"%d" % number, queue_id=0)
    delays.store.flush()
    first = delays.store.log.files.bases[1]
    delays.store.log.files.remove(0)
    queue = delays.store.queues.get(PARKED, 0)
    queue.expire(first)
    delays.wait(1000)
    low = queue.min_offset
    assert 0 < low < 40
    assert delays.bodies() == [b"%d" % number for number in range(low, 40)]


async def test_the_data_version_is_bumped_once_for_many_deliveries() -> None:
    disk = MemoryDisk()
    store = open_small(ROOT, disk=disk, **ROOMY)
    delays = Delays(store, disk, delay_offset_update_version_step=10)
    for _ in range(35):
        delays.send(1)
    delays.wait(1000)
    assert delays.service.data_version.counter >= 1
    before = delays.service.data_version.counter
    delays.wait(1000)
    assert delays.service.data_version.counter == before
    saved = await delays.saved()
    assert saved.data_version == delays.service.data_version


async def test_unchanged_offsets_are_not_written_again(delays: Delays) -> None:
    delays.send(1)
    delays.wait(1000)
    await delays.saved()
    operations = delays.disk.operations
    await delays.saved()
    assert delays.disk.operations == operations


# Running service


@contextlib.asynccontextmanager
async def by_itself(root: Path, **settings: Any) -> AsyncIterator[Delays]:
    """A service in real time; its first level has almost no delay."""
    store = MessageStore.open(
        small_config(root, message_delay_level="0s 1h", flush_delay_offset_interval=1, **(ROOMY | settings)),
        clock=SystemClock(),
    )
    delays = Delays(store, cast("Any", LocalDisk()))
    delays.service.start()
    try:
        yield delays
    finally:
        await delays.service.stop()
        await delays.writer.stop()
        delays.store.close()


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_the_running_service_delivers_by_itself(tmp_path: Path, flush: FlushDiskType) -> None:
    async with by_itself(tmp_path, flush_disk_type=flush) as delays:
        for number in range(200):
            delays.send(1, b"%d" % number)
            if number % 50 == 0:
                delays.store.flush()
                await asyncio.sleep(0)
        delays.send(2, b"later")
        delays.store.flush()
        await eventually(lambda: len(delays.delivered) == 200)
        assert delays.bodies() == [b"%d" % number for number in range(200)]
        config = str(tmp_path / "config")
        await eventually(lambda: DELAY_OFFSETS.load(delays.disk, config).offset_table == {1: 200, 2: 0})


async def test_it_cannot_start_without_its_offsets(delays: Delays) -> None:
    service = ScheduleService(runtime_of(delays.store, delays.writer, delays.stats, flushed=delays._flushed))
    with pytest.raises(AssertionError):
        service.start()


# Compatibility with RocketMQ


def test_a_delivered_message_is_byte_for_byte_what_apache_delivers(tmp_path: Path) -> None:
    store = open_golden("basic", tmp_path)
    parked = {record.born_timestamp: record for level in (0, 1, 2) for record in read_all(store, PARKED, level)}
    delivered = [record for queue_id in (0, 1) for record in read_all(store, "TopicDelay", queue_id)]
    assert len(delivered) == 6
    for record in delivered:
        found = store.record(parked[record.born_timestamp].physical_offset)
        assert found is not None
        ours = decode_for_append(found)
        assert (ours.body, ours.flag, ours.sys_flag) == (record.body, record.flag, record.sys_flag)
        assert (ours.born_host, ours.reconsume_times) == (record.born_host, record.reconsume_times)
        assert ours.properties == record.properties
    store.close()


async def test_deferred_messages_in_a_store_of_apache_are_delivered(tmp_path: Path) -> None:
    store = open_golden("basic", tmp_path)
    delays = Delays(store, cast("Any", store.disk))
    assert delays.service.offsets == {1: 5, 2: 2, 3: 2, 18: 0}
    before = [len(read_all(store, "TopicDelay", queue_id)) for queue_id in (0, 1)]
    delays.look()
    after = [read_all(store, "TopicDelay", queue_id) for queue_id in (0, 1)]
    new = [record for records, count in zip(after, before, strict=True) for record in records[count:]]
    assert [parse(record.properties)["KEYS"] for record in new] == ["delay99", "delay18"]
    assert (await delays.saved()).offset_table == {1: 5, 2: 2, 3: 2, 18: 2}
    store.close()


async def test_a_store_with_extension_units_keeps_its_times(tmp_path: Path) -> None:
    store = open_golden("extra", tmp_path)
    delays = Delays(store, cast("Any", store.disk))
    config = golden.config("extra")
    assert config["enableConsumeQueueExt"] == "true"
    delays.service.levels[1].offset = 0
    (parked,) = read_all(store, PARKED, 0)
    topic = parse(parked.properties)["REAL_TOPIC"]
    queue_id = int(parse(parked.properties)["REAL_QID"])
    delays.look()
    record = read_all(store, topic, queue_id)[-1]
    assert record.body == parked.body
    assert parse(record.properties).keys() - {"__CRC32#"} == parse(parked.properties).keys() - {"__CRC32#"}
    store.close()


def test_the_crc_property_is_not_copied_into_a_new_record() -> None:
    store = open_small(ROOT, disk=MemoryDisk(), **ROOMY, enabled_append_prop_crc=True)
    found = store.record(store.append(StoredMessage(TOPIC, 0, b"m", encode({"KEYS": "k"}))).offset)
    assert found is not None
    assert CRC_PROPERTY in bytes(found)
    rebuilt = decode_for_append(found)
    assert rebuilt.properties == encode({"KEYS": "k"})
    assert (rebuilt.topic, rebuilt.queue_id, rebuilt.physical_offset) == (TOPIC, 0, 0)
    assert rebuilt.store_host == store.log.store_host
    assert rebuilt.store_timestamp == record_at(store, 0).store_timestamp


def test_malformed_bytes_cannot_be_decoded_for_append() -> None:
    with pytest.raises(ProtocolError):
        decode_for_append(memoryview(bytes(200)))


async def test_offsets_are_reported_as_apache_reports_them(delays: Delays) -> None:
    (asked, answered) = [frame for frame in captured("ha") if 45 in {frame.code, frame.request_code}][:2]
    delays.service.offsets = {1: 6, 2: 1}
    delays.service.data_version = DataVersion(0, 0, 1794773334589)
    request = Command(RequestCode.GET_ALL_DELAY_OFFSET, asked.header["opaque"])
    answer = delays.service.all_offsets(request, cast("Any", None))
    assert RequestCode.GET_ALL_DELAY_OFFSET in delays.service.handlers
    assert answer.code == ResponseCode.SUCCESS
    assert answer.body == answered.frame[2]
