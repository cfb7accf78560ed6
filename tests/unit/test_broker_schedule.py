"""Delay levels: where messages wait, when they come back, and what they are then."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest

import golden
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.config_writer import ConfigWriter
from orbitmq.broker.rebuilding import rebuild
from orbitmq.broker.schedule import LONGEST_WAIT_MS, TURN_RECORDS, ScheduleService
from orbitmq.broker.stats import BrokerStats
from orbitmq.protocol.bodies import DataVersion, DelayOffsetSerializeWrapper
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import tags_code
from orbitmq.protocol.properties import encode, parse
from orbitmq.protocol.record import CRC_PROPERTY
from orbitmq.store import LocalDisk, MessageStore, SystemClock
from orbitmq.store.config import FlushDiskType, delay_levels
from orbitmq.store.config_json import DELAY_OFFSETS
from orbitmq.testing import ManualClock, MemoryDisk
from remoting_ends import eventually
from stores import SYNC, T0, TOPIC, open_golden, open_small, read_all, record_at, small_config
from wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from orbitmq.protocol.record import Record

ROOT = "/store"
PARKED = "SCHEDULE_TOPIC_XXXX"
ROOMY: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_index_num": 10_000,
}
DELAYS = delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


class Delays:
    """A store with delayed messages in it, and the service that delivers them when it is told to look."""

    def __init__(self, store: MessageStore, disk: MemoryDisk, **settings: Any) -> None:
        self.store = store
        self.disk = disk
        self.clock = cast("ManualClock", store.clock)
        self.stats = BrokerStats(store.clock, "DefaultCluster")
        self.writer = ConfigWriter(disk, store.config.path("config"), self._run_here)
        self.flushes = 0
        self.service = ScheduleService(
            BrokerConfig(**settings), store, self.writer, store.clock, self.stats, self._flushed
        )
        self.service.load()

    async def _run_here(self, work: Callable[[], Any]) -> Any:
        return work()

    async def _flushed(self, end: int) -> None:
        self.flushes += 1
        assert self.store.flush() >= end

    def send(self, level: object, body: bytes = b"hello", queue_id: int = 2, **more: Any) -> None:
        """What a sender does with a delayed message."""
        parked = self.service.park(
            encode({"KEYS": "k", "TAGS": "TagA", "DELAY": str(level), "UNIQ_KEY": "u1"}), TOPIC, queue_id
        )
        assert parked is not None
        topic, queue_id, properties = parked
        self.store.append(topic, queue_id, body, properties, **more)

    def look(self) -> int:
        """Deliver all that is due now; returns in how many milliseconds to look again."""
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
        """The offsets on the disk after the service was stopped."""
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


# Parking


def test_a_delayed_message_waits_under_its_level(delays: Delays) -> None:
    parked = delays.service.park(encode({"DELAY": "3", "KEYS": "k"}), TOPIC, 2)
    assert parked is not None
    topic, queue_id, properties = parked
    assert (topic, queue_id) == (PARKED, 2)
    assert parse(properties) == {"DELAY": "3", "KEYS": "k", "REAL_TOPIC": TOPIC, "REAL_QID": "2"}


@pytest.mark.parametrize("level", ["19", "99", "2147483648", "9" * 4000])
def test_a_level_over_the_highest_is_the_highest(delays: Delays, level: str) -> None:
    parked = delays.service.park(encode({"DELAY": level}), TOPIC, 0)
    assert parked is not None
    assert parked[1] == 17
    assert parse(parked[2])["DELAY"] == "18"


@pytest.mark.parametrize("level", ["0", "-1", "x", "1.5", " 1", "00"])
def test_a_message_without_a_level_is_not_delayed(delays: Delays, level: str) -> None:
    assert delays.service.park(encode({"DELAY": level}), TOPIC, 0) is None
    assert delays.service.park(encode({"XDELAY": "1"}), TOPIC, 0) is None


def test_a_level_wins_over_a_timer(delays: Delays) -> None:
    properties = encode({"DELAY": "1", "TIMER_DELIVER_MS": "5", "TIMER_DELAY_SEC": "6", "TIMER_DELAY_MS": "7"})
    parked = delays.service.park(properties, TOPIC, 0)
    assert parked is not None
    assert parse(parked[2]).keys() == {"DELAY", "REAL_TOPIC", "REAL_QID"}


def test_a_message_cannot_say_itself_where_it_comes_back(delays: Delays) -> None:
    parked = delays.service.park(encode({"REAL_TOPIC": "Other", "REAL_QID": "9", "DELAY": "1"}), TOPIC, 0)
    assert parked is not None
    assert parse(parked[2]) == {"DELAY": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}


# Delivering


@pytest.mark.parametrize("level", DELAYS)
def test_a_message_comes_when_its_level_says_and_not_before(delays: Delays, level: int) -> None:
    delays.send(level)
    delays.look()
    delays.wait(DELAYS[level] - 1)
    assert delays.delivered == []
    delays.wait(1)
    assert delays.bodies() == [b"hello"]
    delays.wait(10_000_000)
    assert delays.bodies() == [b"hello"]


def test_a_message_comes_back_as_it_was_sent(delays: Delays) -> None:
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


def test_messages_of_a_level_come_in_order_and_levels_do_not_wait_for_each_other(delays: Delays) -> None:
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


def test_it_looks_again_when_the_next_message_is_due(delays: Delays) -> None:
    assert delays.look() == LONGEST_WAIT_MS
    delays.send(1)
    delays.clock.advance(300)
    delays.send(1)
    assert delays.look() == 700
    assert delays.wait(700) == 300
    assert delays.wait(300) == LONGEST_WAIT_MS


def test_many_messages_that_are_due_come_turn_by_turn(delays: Delays) -> None:
    count = 3 * TURN_RECORDS + 5
    for number in range(count):
        delays.send(1, b"%d" % number)
    delays.clock.advance(1000)
    turns = 0
    while delays.service.deliver_due() <= delays.clock.now_ms():
        turns += 1
        assert len(delays.delivered) <= turns * TURN_RECORDS
    assert delays.bodies() == [b"%d" % number for number in range(count)]


def test_large_messages_make_short_turns(delays: Delays) -> None:
    for _ in range(6):
        delays.send(1, bytes(100_000))
    delays.clock.advance(1000)
    delays.service.deliver_due()
    assert len(delays.delivered) == 3
    delays.look()
    assert len(delays.delivered) == 6


def test_a_level_with_many_messages_does_not_keep_others_waiting(delays: Delays) -> None:
    for _ in range(10 * TURN_RECORDS):
        delays.send(1, b"many")
    delays.send(2, b"one", queue_id=3)
    delays.clock.advance(5000)
    for _ in range(2):
        delays.service.deliver_due()
    assert [record.body for record in read_all(delays.store, TOPIC, 3)] == [b"one"]


def test_a_clock_that_is_set_back_makes_nobody_wait_longer_than_the_level() -> None:
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


# What can go wrong


def test_a_refused_message_is_delivered_when_there_is_room_again(
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
        "level 1 of delayed messages waits at 0: the disk is full"
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


def test_a_message_over_a_lowered_limit_waits_for_a_better_one(delays: Delays) -> None:
    delays.send(1, bytes(5000))
    delays.store.close()
    strict = open_again(delays, max_message_size=1000)
    strict.wait(1000)
    assert strict.delivered == []
    strict.store.close()
    again = open_again(strict)
    again.look()
    assert again.bodies() == [bytes(5000)]


def test_a_message_that_no_store_takes_does_not_hold_up_the_others(
    delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    lost = encode({"DELAY": "1", "REAL_TOPIC": "no/topic", "REAL_QID": "0"})
    delays.store.append(PARKED, 0, b"lost", lost)
    delays.send(1, b"kept")
    delays.wait(1000)
    assert delays.bodies() == [b"kept"]
    assert "given up" in caplog.text


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
def test_a_message_that_belongs_nowhere_is_skipped(
    delays: Delays, caplog: pytest.LogCaptureFixture, properties: dict[str, str]
) -> None:
    delays.store.append(PARKED, 0, b"lost", encode({"DELAY": "1", **properties}))
    delays.send(1, b"kept")
    delays.wait(1000)
    assert delays.bodies() == [b"kept"]
    assert "it is skipped" in caplog.text
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
    assert "the delayed message at 0 cannot be read: it is skipped" in caplog.text
    assert again.service.offsets == {1: 2}


def test_units_without_a_record_are_passed(delays: Delays) -> None:
    delays.send(1, b"old")
    queue = delays.store.queues.get(PARKED, 0)
    delays.send(2, b"other")
    other = delays.store.queues.get(PARKED, 1)
    # The number between is missing, as after damage to the log.
    assert queue.put(2, other.max_physical, 300, T0 + 1000)  # type: ignore[call-arg]
    delays.wait(1000)
    assert delays.bodies() == [b"old"]
    assert delays.service.offsets[1] == 3


def test_a_message_that_is_not_flushed_yet_waits_for_that() -> None:
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
    # Nobody but the service asked for the flush that shows it.
    assert delays.flushes == 1
    assert delays.bodies() == [b"hello"]


# Over restarts


async def test_after_a_stop_it_goes_on_where_it_was(delays: Delays) -> None:
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


async def test_what_came_due_while_the_broker_was_away_comes_at_once(delays: Delays) -> None:
    delays.send(5)
    delays.store.close()
    again = open_again(delays)
    again.wait(3_600_000)
    assert again.bodies() == [b"hello"]


def test_after_a_kill_a_message_may_come_twice_and_never_not_at_all(delays: Delays) -> None:
    delays.send(1, b"one")
    delays.wait(1000)
    delays.send(1, b"two")
    after = open_again(delays, delays.disk.kill())
    after.wait(1000)
    assert after.bodies() == [b"one", b"one", b"two"]
    assert after.service.offsets == {1: 2}


async def test_offsets_are_kept_only_of_what_is_on_the_disk(delays: Delays) -> None:
    delays.send(1)
    delays.store.flush()
    delays.wait(1000)
    await delays.saved()
    assert delays.store.log.flushed == delays.store.log.end
    left = delays.disk.power_cut()
    after = open_again(delays, left)
    assert after.service.offsets == {1: 1}
    assert after.bodies() == [b"hello"]


async def test_offsets_are_not_kept_if_the_disk_does_not_store_the_log(
    delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    delays.send(1)
    delays.wait(1000)
    delays.disk.fail("sync", path_contains="commitlog", times=100)
    assert (await delays.saved()).offset_table == {}
    assert "are not kept" in caplog.text


async def test_offsets_outside_their_queue_are_moved_into_it(delays: Delays) -> None:
    table = DelayOffsetSerializeWrapper({1: 7, 2: 9, 40: 3}, DataVersion(5, 0, T0))
    DELAY_OFFSETS.persist(delays.disk, f"{ROOT}/config", table)
    delays.send(1)
    delays.store.close()
    again = open_again(delays)
    # The queue of level 2 is gone and will begin at 0; of level 40 nobody knows anything.
    assert again.service.offsets == {1: 1, 2: 0, 40: 3}
    again.send(2, b"new")
    again.wait(5000)
    assert again.bodies() == [b"new"]


async def test_a_level_whose_oldest_messages_expired_goes_on_with_the_next() -> None:
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


async def test_the_version_steps_once_for_many_deliveries() -> None:
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


async def test_what_has_not_changed_is_not_written_again(delays: Delays) -> None:
    delays.send(1)
    delays.wait(1000)
    await delays.saved()
    operations = delays.disk.operations
    await delays.saved()
    assert delays.disk.operations == operations


# By itself


@contextlib.asynccontextmanager
async def by_itself(root: Path, **settings: Any) -> AsyncIterator[Delays]:
    """A service in real time, with levels of which the first has no delay worth mentioning."""
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
async def test_messages_come_without_anybody_asking(tmp_path: Path, flush: FlushDiskType) -> None:
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
    store = delays.store
    service = ScheduleService(BrokerConfig(), store, delays.writer, store.clock, delays.stats, delays._flushed)
    with pytest.raises(AssertionError):
        service.start()


# Beside RocketMQ


def test_a_delivered_message_is_byte_for_byte_what_apache_delivers(tmp_path: Path) -> None:
    store = open_golden("basic", tmp_path)
    parked = {record.born_timestamp: record for level in (0, 1, 2) for record in read_all(store, PARKED, level)}
    delivered = [record for queue_id in (0, 1) for record in read_all(store, "TopicDelay", queue_id)]
    assert len(delivered) == 6
    for record in delivered:
        found = store.record(parked[record.born_timestamp].physical_offset)
        assert found is not None
        ours = rebuild(found)
        assert (ours.body, ours.flag, ours.sys_flag) == (record.body, record.flag, record.sys_flag)
        assert (ours.born_host, ours.reconsume_times) == (record.born_host, record.reconsume_times)
        assert ours.properties == record.properties
    store.close()


async def test_messages_that_wait_in_a_store_of_apache_are_delivered(tmp_path: Path) -> None:
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


def test_a_property_that_covers_the_old_record_does_not_go_into_the_new_one() -> None:
    store = open_small(ROOT, disk=MemoryDisk(), **ROOMY, enabled_append_prop_crc=True)
    found = store.record(store.append(TOPIC, 0, b"m", encode({"KEYS": "k"})).offset)
    assert found is not None
    assert CRC_PROPERTY in bytes(found)
    rebuilt = rebuild(found)
    assert rebuilt.properties == encode({"KEYS": "k"})
    assert (rebuilt.topic, rebuilt.queue_id, rebuilt.physical_offset) == (TOPIC, 0, 0)
    assert rebuilt.store_host == store.log.store_host
    assert rebuilt.store_timestamp == record_at(store, 0).store_timestamp


def test_bytes_that_are_no_record_cannot_be_rebuilt() -> None:
    with pytest.raises(ProtocolError):
        rebuild(memoryview(bytes(200)))


async def test_offsets_are_told_as_apache_tells_them(delays: Delays) -> None:
    (asked, answered) = [frame for frame in captured("ha") if 45 in {frame.code, frame.request_code}][:2]
    delays.service.offsets = {1: 6, 2: 1}
    delays.service.data_version = DataVersion(0, 0, 1794773334589)
    request = Command(RequestCode.GET_ALL_DELAY_OFFSET, asked.header["opaque"])
    answer = delays.service.all_offsets(request, cast("Any", None))
    assert RequestCode.GET_ALL_DELAY_OFFSET in delays.service.handlers
    assert answer.code == ResponseCode.SUCCESS
    assert answer.body == answered.frame[2]
