"""Timer restarts, crashes, stores of Apache RocketMQ, and a running timer service."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.deferred.delivery_loop import MAX_WAIT_MS, SLICE_RECORDS
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import MessageStore, from_settings
from orbitmq.store.config_tables import TIMER_METRICS
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.timer_harness import DAY, ROOT, SECOND, Timers, properties_of, reopened, small_timers
from support.remoting_harness import eventually
from support.store import golden
from support.store.stores import SYNC, TOPIC, read_all

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600 * SECOND


@pytest.fixture
def timers() -> Timers:
    return small_timers()


# Clean and unclean shutdowns


async def test_deferred_messages_stay_deferred_after_a_restart(timers: Timers) -> None:
    timers.send_in(10, b"one")
    timers.send_in(3600, b"two")
    timers.look()
    await timers.stop()
    timers.clock.advance(60_000)
    again = reopened(timers)
    assert again.service.waiting == 2
    again.look()
    assert again.bodies() == [b"one"]
    assert again.counts.of(TOPIC) == 1
    again.wait(HOUR)
    assert again.bodies() == [b"one", b"two"]


async def test_messages_not_entered_yet_are_entered_after_a_restart(timers: Timers) -> None:
    timers.send_in(10, b"one")
    await timers.stop()
    again = reopened(timers)
    again.look()
    again.wait(11_000)
    assert again.bodies() == [b"one"]


async def test_a_recalled_message_stays_recalled_when_it_comes_due_during_a_downtime(timers: Timers) -> None:
    for number in range(50):
        timers.send_in(10, b"%d" % number)
    for number in range(0, 50, 2):
        timers.take_back(b"%d" % number, 10)
    disk = timers.disk
    assert isinstance(disk, MemoryDisk)
    timers.clock.advance(60_000)
    again = reopened(timers, disk.kill())
    again.look()
    assert again.bodies() == [b"%d" % number for number in range(1, 50, 2)]
    assert again.counts.of(TOPIC) == again.service.waiting == 0


async def test_after_a_week_of_downtime_every_message_is_delivered_once(timers: Timers) -> None:
    timers.send("TIMER_DELAY_SEC", 2 * 86_400 - 5, b"rolls not")
    timers.send_in(10, b"soon")
    timers.look()
    await timers.stop()
    timers.clock.advance(11 * DAY)
    again = reopened(timers)
    again.send_in(100, b"new")
    again.look()
    assert again.bodies() == [b"soon", b"rolls not"]
    again.wait(101_000)
    assert again.bodies() == [b"soon", b"rolls not", b"new"]


async def test_after_a_downtime_beyond_the_wheel_the_oldest_messages_are_dropped(timers: Timers) -> None:
    timers.send_in(10, b"soon")
    timers.look()
    await timers.stop()
    timers.clock.advance(13 * DAY)
    again = reopened(timers)
    again.look()
    assert again.bodies() == []


async def test_a_kill_repeats_only_deliveries_after_the_last_save(timers: Timers) -> None:
    many = 3 * SLICE_RECORDS
    for number in range(many):
        timers.send_in(5, b"%03d" % number)
    timers.look()
    timers.clock.advance(6000)
    timers.service.run_slice()
    await timers.save()
    timers.service.run_slice()
    disk = timers.disk
    assert isinstance(disk, MemoryDisk)
    again = reopened(timers, disk.kill())
    again.look()
    bodies = again.bodies()
    assert sorted(set(bodies)) == [b"%03d" % number for number in range(many)]
    assert len(bodies) == many + SLICE_RECORDS
    assert again.counts.of(TOPIC) == 0


async def test_counts_are_corrected_after_a_kill(timers: Timers) -> None:
    for seconds in (5, 50, 500):
        timers.send_in(seconds, b"%d" % seconds)
    timers.look()
    await timers.save()
    await timers.writer.saved()
    timers.wait(10_000)
    disk = timers.disk
    assert isinstance(disk, MemoryDisk)
    again = reopened(timers, disk.kill())
    again.look()
    assert again.counts.of(TOPIC) == again.service.waiting == 2


async def test_a_power_failure_after_a_flush_loses_nothing_and_repeats_later_deliveries() -> None:
    timers = small_timers(**SYNC)
    timers.send_in(5, b"one")
    timers.send_in(50, b"two")
    timers.store.flush()
    timers.look()
    await timers.save()
    timers.wait(10_000)
    timers.store.flush()
    disk = timers.disk
    assert isinstance(disk, MemoryDisk)
    again = reopened(timers, disk.power_cut(), **SYNC)
    again.look()
    again.store.flush()
    assert set(again.bodies()) == {b"one"}
    again.wait(60_000)
    again.store.flush()
    assert set(again.bodies()) == {b"one", b"two"}


async def test_progress_is_saved_after_the_flush_of_deliveries() -> None:
    timers = small_timers(**SYNC)
    timers.send_in(5, b"one")
    timers.store.flush()
    timers.look()
    timers.wait(10_000)
    disk = timers.disk
    assert isinstance(disk, MemoryDisk)
    disk.fail("sync", path_contains="commitlog")
    with pytest.raises(Exception, match="restart the broker"):
        timers.store.flush()
    saved = disk.stat(f"{ROOT}/config/timercheck")
    await timers.save()
    assert disk.stat(f"{ROOT}/config/timercheck") == saved


async def test_counts_are_in_apaches_file(timers: Timers) -> None:
    timers.send_in(50, b"one")
    timers.send_in(60, b"two")
    timers.look()
    await timers.stop()
    table = TIMER_METRICS.load(timers.store.disk, f"{ROOT}/config")
    assert {topic: metric.count for topic, metric in table.timing_count.items()} == {TOPIC: 2}
    assert table.data_version.counter == 2


# Stores of Apache RocketMQ


@pytest.fixture
def apaches(tmp_path: Path) -> Timers:
    root = golden.unpack("basic", tmp_path, with_timer=True)
    config, _ = from_settings(golden.config("basic"), store_path_root_dir=root)
    return Timers(MessageStore.open(config, clock=ManualClock(1794773700000)))


async def test_deferred_messages_in_a_store_of_apache_are_delivered(apaches: Timers) -> None:
    store, clock = apaches.store, apaches.clock
    before = store.max_offset("TopicTimer", 0), store.max_offset("TopicTimer", 1)
    assert apaches.service.waiting == 2
    assert apaches.counts.of("TopicTimer") == 2
    apaches.look()
    apaches.wait(1794774101000 - clock.now_ms())  # the slot of the recalled message
    assert (store.max_offset("TopicTimer", 0), store.max_offset("TopicTimer", 1)) == before
    apaches.wait(1794777099000 - clock.now_ms())
    assert store.max_offset("TopicTimer", 1) == before[1]
    apaches.wait(1000)
    (hour,) = read_all(store, "TopicTimer", 1)[-1:]
    assert properties_of(hour)["KEYS"] == "timer5"
    assert properties_of(hour)["TIMER_ENQUEUE_MS"] == "1794773499000"
    assert apaches.counts.of("TopicTimer") == 1
    apaches.wait(2 * DAY)  # rolls
    assert store.max_offset("TopicTimer", 0) == before[0]
    (rolled,) = read_all(store, TIMER_TOPIC)[-1:]
    assert properties_of(rolled)["TIMER_ROLL_TIMES"] == "1"
    apaches.wait(1795032639000 - clock.now_ms() - 1)
    assert store.max_offset("TopicTimer", 0) == before[0]
    apaches.wait(1)
    (far,) = read_all(store, "TopicTimer", 0)[-1:]
    assert properties_of(far)["KEYS"] == "timer4"
    assert apaches.counts.of("TopicTimer") == 0
    await apaches.stop()


async def test_the_store_of_a_killed_apache_broker_is_recovered(tmp_path: Path) -> None:
    root = golden.unpack("killed", tmp_path, with_timer=True)
    config, _ = from_settings(golden.config("killed"), store_path_root_dir=root)
    timers = Timers(MessageStore.open(config, clock=ManualClock(2_000_000_000_000)))
    end = timers.store.max_offset(TIMER_TOPIC, 0)
    timers.look()
    assert timers.service.queue_offset == end
    await timers.stop()


# Running service


class Running:
    """A running timer service with a manual clock."""

    def __init__(self, **settings: Any) -> None:
        self.timers = small_timers(**settings)

    async def __aenter__(self) -> Timers:
        self.timers.service.start()
        return self.timers

    async def __aexit__(self, *_: object) -> None:
        await self.timers.stop()


async def test_the_running_service_delivers_and_saves_its_progress() -> None:
    async with Running() as timers:
        timers.send_in(5, b"one")
        await eventually(lambda: timers.service.queue_offset == 1)
        timers.clock.advance(6000)
        await eventually(lambda: timers.bodies() == [b"one"])
        timers.clock.advance(MAX_WAIT_MS)
        await eventually(lambda: timers.service.files.saved.queue_offset == 1)
        saved = timers.service.files.saved
        assert saved.version_counter > 0
        assert saved.log_end == timers.service.files.log.end


async def test_under_sync_flush_deliveries_are_flushed_without_a_client_request() -> None:
    async with Running(**SYNC) as timers:
        timers.send_in(5, b"one")
        timers.store.flush()
        await eventually(lambda: timers.service.queue_offset == 1)
        timers.clock.advance(6000)
        await eventually(lambda: timers.bodies() == [b"one"])


async def test_an_unexpected_error_does_not_end_delivery(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Running() as timers:
        monkeypatch.setattr(timers.service._enqueue, "enter_new", lambda: 1 // 0)
        timers.service._loop.wake_by(0)
        await eventually(lambda: "timer: delivery failed, will retry" in caplog.text)
        monkeypatch.undo()
        timers.send_in(5, b"one")
        timers.clock.advance(6000)
        await eventually(lambda: timers.bodies() == [b"one"])


async def test_a_broker_without_timer_messages_writes_no_timer_files() -> None:
    async with Running() as timers:
        await asyncio.sleep(0)
    assert not [name for name in timers.store.disk.list(ROOT) if name.startswith("timer")]
