"""Retention: which log files go and when, and that queues, index and readers follow."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.batch import encode_batch
from orbitmq.protocol.record import iter_records
from orbitmq.store import AppendRefusedError, GetStatus, LocalDisk, MessageStore, PutStatus
from orbitmq.store.disk import Space
from orbitmq.store.retention import MANUAL_ROUNDS, Retention
from orbitmq.testing import ManualClock, MemoryDisk, PowerCut
from stores import LOG_FILE, SYNC, T0, TOPIC, offsets_of, open_small, read_all, send

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.store.disk import Disk

HOUR = 3_600_000
TO_FOUR = 6 * HOUR
"""The clock of these tests starts at 22:13; so much later it is past four, when files are deleted."""
PER_FILE = 3
"""Messages of ``SIZE`` bytes that fit a log file."""
SIZE = 1000


class GivenSpace(MemoryDisk):
    """A disk that is as full as a test says."""

    used = 10
    used_of: dict[str, int]
    """Per cent used, by the end of a path; ``used`` for others."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.used_of = {}

    def space(self, path: str) -> Space:
        used = next((used for end, used in self.used_of.items() if path.endswith(end)), self.used)
        return Space(100, used, 100 - used)


@dataclasses.dataclass
class Aged:
    """A store on a virtual disk with a clock of its own."""

    store: MessageStore
    disk: GivenSpace
    clock: ManualClock
    settings: dict[str, Any]

    def files(self) -> int:
        return len(self.disk.list("/store/commitlog"))

    def reopen(self) -> None:
        self.store = open_small("/store", disk=self.disk, clock=self.clock, **self.settings)


def aged(files: int = 4, **settings: Any) -> Aged:
    """A store with so many log files, all full but the last, everything flushed."""
    clock = ManualClock(T0)
    disk = GivenSpace(clock)
    store = open_small("/store", disk=disk, clock=clock, **settings)
    send(store, (files - 1) * PER_FILE + 1, size=SIZE, KEYS="k", UNIQ_KEY="u")
    store.flush()
    assert len(disk.list("/store/commitlog")) == files
    return Aged(store, disk, clock, settings)


# When files go


def test_expired_files_wait_for_the_hour_of_deletion() -> None:
    it = aged()
    it.clock.advance(73 * HOUR)
    assert it.clock.hour() == 23
    assert Retention(it.store).run().log_files == []
    it.clock.advance(5 * HOUR)
    report = Retention(it.store).run()
    assert it.clock.hour() == 4
    assert report.reason == "it is 04 o'clock"
    assert len(report.log_files) == 3
    assert it.files() == 1
    it.store.close()


def test_files_that_are_not_old_enough_stay() -> None:
    it = aged()
    it.clock.advance(TO_FOUR)
    report = Retention(it.store).run()
    assert report.reason
    assert report.log_files == []
    assert it.files() == 4
    it.store.close()


def test_the_first_file_that_is_not_old_enough_ends_a_round() -> None:
    it = aged(file_reserved_time=3)
    it.clock.advance(2 * HOUR)
    # A second file younger than the third: restored from a backup, say.
    it.disk.pwrite(f"/store/commitlog/{LOG_FILE:020d}", LOG_FILE - 1, b"\0")
    it.clock.advance(2 * HOUR)
    retention = Retention(it.store)
    retention.request()
    assert len(retention.run().log_files) == 1
    assert it.store.log.start == LOG_FILE
    it.store.close()


@pytest.mark.parametrize(("when", "hour", "goes"), [("22", 22, True), ("04;22", 22, True), ("21;23", 22, False)])
def test_any_of_several_hours_will_do(when: str, hour: int, goes: bool) -> None:
    it = aged(delete_when=when, file_reserved_time=24)
    it.clock.advance(24 * HOUR)
    assert it.clock.hour() == hour
    assert bool(Retention(it.store).run().log_files) is goes
    it.store.close()


def test_a_request_by_hand_needs_no_hour_and_holds_for_some_rounds() -> None:
    it = aged(files=MANUAL_ROUNDS + 5, delete_file_batch_max=1)
    it.clock.advance(73 * HOUR)
    retention = Retention(it.store)
    assert not retention.run().log_files
    retention.request()
    removed = [len(retention.run().log_files) for _ in range(MANUAL_ROUNDS + 2)]
    assert removed == [1] * MANUAL_ROUNDS + [0, 0]
    it.store.close()


def test_a_request_by_hand_removes_only_what_has_expired() -> None:
    it = aged()
    retention = Retention(it.store)
    retention.request()
    assert retention.run().log_files == []
    it.store.close()


def test_a_round_removes_at_most_a_batch() -> None:
    it = aged(files=8, delete_file_batch_max=3)
    it.clock.advance(72 * HOUR + TO_FOUR)
    assert [len(Retention(it.store).run().log_files) for _ in range(4)] == [3, 3, 1, 0]
    it.store.close()


# What stays


def test_the_newest_file_never_goes() -> None:
    it = aged(files=1)
    it.clock.advance(1000 * HOUR + TO_FOUR)
    it.disk.used = 99
    assert Retention(it.store).run().log_files == []
    assert it.files() == 1
    assert len(read_all(it.store)) == 1
    it.store.close()


def test_a_full_newest_file_stays_too() -> None:
    it = aged(files=1)
    send(it.store, 2, size=SIZE)
    it.store.append(TOPIC, 0, b"x" * (LOG_FILE - it.store.log.end - 97 - 8))
    assert it.store.log.end == LOG_FILE - 8
    it.store.flush()
    it.disk.used = 99
    assert Retention(it.store).run().log_files == []
    it.store.close()


@pytest.mark.parametrize("settings", [{}, SYNC], ids=["async", "sync"])
def test_what_is_not_flushed_stays(settings: dict[str, Any]) -> None:
    it = aged(files=3, **settings)
    end = it.store.log.flushed
    send(it.store, 4 * PER_FILE, size=SIZE)
    it.disk.used = 86
    while Retention(it.store).run().log_files:
        pass
    assert it.store.log.start == end - end % LOG_FILE
    it.store.flush()
    while Retention(it.store).run().log_files:
        pass
    assert it.files() == 1
    it.store.close()


# By room on the disk


@pytest.mark.parametrize(
    ("used", "expired", "removed", "takes_messages"),
    [
        (75, True, 0, True),
        (76, True, 3, True),
        (76, False, 0, True),
        (85, False, 0, True),
        (86, False, 3, True),
        (90, False, 3, True),
        (91, False, 3, False),
    ],
)
def test_a_fuller_disk_lets_more_go(used: int, expired: bool, removed: int, takes_messages: bool) -> None:
    it = aged()
    it.clock.advance(73 * HOUR if expired else 0)
    it.disk.used = used
    report = Retention(it.store).run()
    assert len(report.log_files) == removed
    assert report.reason == ("" if used == 75 else f"the disk is {used}% full")
    if takes_messages:
        send(it.store)
    else:
        with pytest.raises(AppendRefusedError, match=f"the disk is {used}% full.*free space") as refused:
            send(it.store)
        assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    it.store.close()


def test_messages_are_taken_again_only_when_there_is_clearly_room() -> None:
    it = aged()
    retention = Retention(it.store)
    taken = []
    for used in (91, 90, 86, 85, 90, 91, 10):
        it.disk.used = used
        retention.run()
        taken.append(it.store.appender.gate.reason is None)
    assert taken == [False, False, False, True, True, False, True]
    it.store.close()


def test_files_go_at_any_age_only_where_that_is_wanted() -> None:
    it = aged(clean_file_forcibly_enable=False)
    it.disk.used = 99
    assert Retention(it.store).run().log_files == []
    it.clock.advance(73 * HOUR)
    assert len(Retention(it.store).run().log_files) == 3
    it.store.close()


def test_a_store_that_refuses_messages_always_makes_room() -> None:
    """Even if the level from which it refuses is set below the one from which files go at any age."""
    it = aged(disk_space_warning_level_ratio=40, disk_max_used_space_ratio=95)
    it.disk.used = 50
    report = Retention(it.store).run()
    assert it.store.appender.gate.reason is not None
    assert len(report.log_files) == 3
    it.store.close()


def test_forced_deletion_does_not_wait_for_a_higher_ratio_of_use() -> None:
    it = aged(disk_space_clean_forcibly_ratio=50, disk_max_used_space_ratio=95)
    it.disk.used = 60
    assert len(Retention(it.store).run().log_files) == 3
    it.store.close()


def test_levels_stay_within_the_bounds_rocketmq_sets() -> None:
    it = aged(disk_max_used_space_ratio=99, disk_space_clean_forcibly_ratio=99, disk_space_warning_level_ratio=99)
    it.disk.used = 86
    assert len(Retention(it.store).run().log_files) == 3
    it.disk.used = 91
    Retention(it.store).run()
    assert it.store.appender.gate.reason is not None
    it.store.close()


def test_the_emptiest_directory_of_the_log_decides_or_that_of_the_queues() -> None:
    clock = ManualClock(T0)
    disk = GivenSpace(clock)
    store = open_small("/store", disk=disk, clock=clock, store_path_commit_log="/a/log,/b/log")
    retention = Retention(store)
    disk.used_of = {"/a/log": 95, "/b/log": 20, "consumequeue": 10}
    assert retention.used_ratio() == 0.2
    disk.used_of["consumequeue"] = 92
    assert retention.used_ratio() == 0.92
    store.close()


def test_log_files_go_from_all_their_directories() -> None:
    clock = ManualClock(T0)
    disk = GivenSpace(clock)
    settings = {"store_path_commit_log": "/a/log,/b/log"}
    store = open_small("/store", disk=disk, clock=clock, **settings)
    sent = send(store, 6 * PER_FILE, size=SIZE)
    store.flush()
    disk.used = 88
    assert len(Retention(store).run().log_files) == 5
    assert len(disk.list("/a/log") + disk.list("/b/log")) == 1
    store.close()
    with open_small("/store", disk=disk, clock=clock, **settings) as again:
        assert offsets_of(read_all(again)) == sent[-PER_FILE:]


# What follows the log


def test_queues_and_index_follow() -> None:
    it = aged(files=1)
    sent = [
        offset for number in range(20 * PER_FILE) for offset in send(it.store, size=SIZE, UNIQ_KEY=f"u{number}")
    ]
    it.store.flush()
    it.store.sync_queues()
    queue_files = len(it.disk.list(f"/store/consumequeue/{TOPIC}/0"))
    index_files = len(it.disk.list("/store/index"))
    it.disk.used = 86
    report = Retention(it.store).run()
    assert len(report.log_files) == 10
    assert report.queue_files == queue_files - len(it.disk.list(f"/store/consumequeue/{TOPIC}/0")) > 0
    assert report.index_files == index_files - len(it.disk.list("/store/index")) == 0
    while Retention(it.store).run().log_files:
        pass
    left = [offset for offset in sent if offset >= it.store.log.start]
    assert offsets_of(read_all(it.store)) == left
    assert it.store.min_offset(TOPIC, 0) == 20 * PER_FILE + 1 - len(left)
    assert it.store.max_offset(TOPIC, 0) == 20 * PER_FILE + 1
    gone = it.store.get(TOPIC, 0, it.store.min_offset(TOPIC, 0) - 1)
    assert gone.status is GetStatus.OFFSET_TOO_SMALL
    assert gone.next_begin_offset == it.store.min_offset(TOPIC, 0)
    assert it.store.query(TOPIC, "u0").records == []
    assert len(it.store.query(TOPIC, f"u{20 * PER_FILE - 1}").records) == 1
    it.store.close()
    it.reopen()
    assert it.store.recovery.clean
    assert offsets_of(read_all(it.store)) == left
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def test_index_files_whose_records_are_all_gone_are_deleted_but_the_newest() -> None:
    it = aged(files=1, max_index_num=10)
    send(it.store, 10 * PER_FILE, size=SIZE, UNIQ_KEY="u")
    it.store.flush()
    it.store.sync_queues()
    before = it.disk.list("/store/index")
    it.disk.used = 86
    removed = 0
    while (report := Retention(it.store).run()).log_files:
        removed += report.index_files
    after = it.disk.list("/store/index")
    assert removed == len(before) - len(after) > 0
    assert after == before[removed:]
    assert len(it.store.query(TOPIC, "u").records) == len(read_all(it.store))
    it.store.close()


def test_a_queue_whose_messages_are_all_gone_keeps_its_numbering() -> None:
    it = aged(files=1)
    send(it.store, 4, topic="quiet")
    send(it.store, 4 * PER_FILE, size=SIZE)
    it.store.flush()
    it.disk.used = 86
    assert Retention(it.store).run().log_files
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 4
    assert it.store.get("quiet", 0, 4).status is GetStatus.OFFSET_OVERFLOW_ONE
    it.store.close()
    it.reopen()
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 4
    assert it.store.append("quiet", 0, b"").queue_offset == 4
    it.store.close()


@pytest.mark.parametrize("messages", [4, 25], ids=["one queue file", "several queue files"])
@pytest.mark.parametrize("crashed", [False, True])
def test_a_queue_that_nobody_touched_follows_when_it_is_opened(messages: int, crashed: bool) -> None:
    it = aged(files=1)
    send(it.store, messages, topic="quiet")
    send(it.store, 40 * PER_FILE, size=SIZE)
    late = send(it.store, 2, topic="late")
    send(it.store, PER_FILE + 1, size=SIZE)
    it.store.close()
    it.reopen()
    send(it.store, 9, size=SIZE)
    it.store.flush()
    it.disk.used = 86
    while Retention(it.store).run().log_files:
        pass
    if crashed:
        it.disk = _killed(it.disk)
        it.reopen()
        assert not it.store.recovery.clean
    it.disk.used = 10
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == messages
    assert it.store.max_offset("late", 0) == len(late)
    assert it.store.append("quiet", 0, b"").queue_offset == messages
    assert it.store.append("late", 0, b"").queue_offset == len(late)
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def _killed(disk: GivenSpace) -> GivenSpace:
    left = disk.kill()
    clock = disk._clock
    assert isinstance(clock, ManualClock)
    successor = GivenSpace(clock)
    successor._names, successor._used = left._names, left._used
    return successor


def test_an_untouched_queue_that_lost_only_its_front_is_not_written_anew() -> None:
    it = aged(files=1)
    early = send(it.store, 3, topic="quiet")
    send(it.store, 10 * PER_FILE, size=SIZE)
    late = send(it.store, 2, topic="quiet")
    send(it.store, 1, size=SIZE)
    it.store.close()
    it.reopen()
    it.disk.used = 86
    while Retention(it.store).run().log_files:
        pass
    assert it.store.log.start > early[-1]
    assert offsets_of(read_all(it.store, "quiet")) == late
    assert (it.store.min_offset("quiet", 0), it.store.max_offset("quiet", 0)) == (3, 5)
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()
    it.reopen()
    assert offsets_of(read_all(it.store, "quiet")) == late
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def test_a_queue_that_lost_its_front_before_a_crash_is_not_written_anew_later() -> None:
    it = aged(files=1, delete_file_batch_max=3)
    send(it.store, 25, topic="quiet")
    for _ in range(10 * PER_FILE):
        send(it.store, size=SIZE)
        it.clock.advance(10_000)
    it.store.close()
    it.reopen()
    assert it.store.get("quiet", 0, 0).count
    send(it.store)
    it.store.flush()
    it.store.sync_queues()
    it.disk.used = 86
    assert len(Retention(it.store).run().log_files) == 3
    assert it.disk.list("/store/consumequeue/quiet/0") == [f"{400:020d}"]
    it.disk = _killed(it.disk)
    it.reopen()
    it.store.close()
    it.reopen()
    assert it.store.recovery.clean
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 25
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def test_a_queue_file_that_comes_back_after_it_was_removed_does_no_harm() -> None:
    """A removed name that was not made durable is there again after a power cut."""
    it = aged(files=1, delete_file_batch_max=3)
    send(it.store, 25, topic="quiet")
    for _ in range(10 * PER_FILE):
        send(it.store, size=SIZE)
        it.clock.advance(10_000)
    it.store.flush()
    it.store.sync_queues()
    first = f"/store/consumequeue/quiet/0/{0:020d}"
    units = it.disk.read(first)
    it.disk.used = 86
    assert Retention(it.store).run().log_files
    it.disk = _killed(it.disk)
    it.disk.write(first, units)
    it.reopen()
    assert it.store.min_offset("quiet", 0) == it.store.max_offset("quiet", 0) == 25
    assert it.store.append("quiet", 0, b"").queue_offset == 25
    assert it.store.recovery.rebuilt_queues == []
    it.store.close()


def test_batch_queues_keep_their_numbering_over_a_crash() -> None:
    it = aged(files=1, batch_topics=["batched"])
    batch = encode_batch([(0, b"m" * 100, b"")] * 3)
    for _ in range(5):
        it.store.append_inner_batch("batched", 0, batch)
    send(it.store, 4 * PER_FILE, size=SIZE)
    it.store.flush()
    it.store.sync_queues()
    it.disk.used = 86
    assert Retention(it.store).run().log_files
    it.disk = _killed(it.disk)
    it.reopen()
    assert not it.store.recovery.clean
    assert it.store.append_inner_batch("batched", 0, batch).queue_offset == 15
    it.store.close()


def test_batch_queues_follow() -> None:
    it = aged(files=1, batch_topics=["batched"])
    batch = encode_batch([(0, b"m" * 100, b"")] * 3)
    for _ in range(30):
        send(it.store, 1, size=SIZE)
        it.store.append_inner_batch("batched", 0, batch)
    it.store.flush()
    it.store.sync_queues()
    it.disk.used = 86
    removed = 0
    while (report := Retention(it.store).run()).log_files:
        removed += report.queue_files
    assert removed
    left = read_all(it.store, "batched")
    assert left[0].queue_offset == it.store.min_offset("batched", 0) == 90 - 3 * len(left)
    assert it.store.max_offset("batched", 0) == 90
    it.store.close()
    it.reopen()
    assert offsets_of(read_all(it.store, "batched")) == offsets_of(left)
    it.store.close()


@pytest.mark.parametrize("crashed", [False, True])
def test_reopening_afterwards_finds_what_was_left(crashed: bool) -> None:
    it = aged(files=6)
    it.disk.used = 86
    Retention(it.store).run()
    left = offsets_of(read_all(it.store))
    left += send(it.store, 2, size=SIZE)
    it.store.flush()
    if crashed:
        it.store.let_go()
    else:
        it.store.close()
    it.reopen()
    assert it.store.recovery.clean is not crashed
    assert offsets_of(read_all(it.store)) == left
    assert it.store.append(TOPIC, 0, b"").queue_offset == 5 * PER_FILE + 3
    it.store.close()


# Readers


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_slow_reader_reads_its_slices_to_the_end(kind: str, tmp_path: Path) -> None:
    disk: Disk = LocalDisk() if kind == "local" else MemoryDisk()
    root = tmp_path if kind == "local" else "/store"
    store = open_small(root, disk=disk, disk_space_clean_forcibly_ratio=30)
    sent = send(store, 8 * PER_FILE, size=SIZE)
    store.flush()
    held = store.get(TOPIC, 0, 0)
    assert len(held.slices) > 2
    before = [bytes(piece) for piece in held.slices]
    for base in store.log.files.bases[:-1]:
        store.log.files.remove(base)
    Retention(store)._follow(Retention(store).run())
    assert disk.list(f"{root}/commitlog") == [f"{7 * LOG_FILE:020d}"]
    assert store.record(sent[0]) is None
    send(store, 8 * PER_FILE, size=SIZE)
    store.close()
    assert [bytes(piece) for piece in held.slices] == before
    records = [record for piece in held.slices for record in iter_records(piece)]
    assert all(record.body_is_intact for record in records)
    assert offsets_of(records) == sent[: len(records)]


# Faults on the way


def test_a_file_that_cannot_be_removed_leaves_no_hole_in_the_log() -> None:
    it = aged(files=6, delete_file_batch_max=2)
    it.disk.used = 86
    it.disk.fail("remove", error=errno.EBUSY, path_contains="commitlog")
    with pytest.raises(OSError, match="commitlog"):
        Retention(it.store).run()
    assert it.store.log.start == 0
    assert len(Retention(it.store).run().log_files) == 2
    left = offsets_of(read_all(it.store))
    it.store.close()
    it.reopen()
    assert offsets_of(read_all(it.store)) == left
    it.store.close()


def test_queues_follow_even_if_a_round_is_broken_off() -> None:
    it = aged(files=6)
    it.disk.used = 86
    it.disk.fail("remove", error=errno.EBUSY, path_contains="commitlog", after=2)
    with pytest.raises(OSError, match="commitlog"):
        Retention(it.store).run()
    assert it.store.log.start == 2 * LOG_FILE
    assert it.store.min_offset(TOPIC, 0) == 2 * PER_FILE
    assert len(read_all(it.store)) == 3 * PER_FILE + 1
    it.store.close()


@pytest.mark.parametrize("operations", range(24))
def test_a_power_cut_in_the_middle_loses_nothing_that_had_not_expired(operations: int) -> None:
    clock = ManualClock(T0)
    disk = MemoryDisk(operations, clock=clock)
    settings: dict[str, Any] = {"file_reserved_time": 1, "delete_file_batch_max": 4, "max_index_num": 20}
    store = open_small("/store", disk=disk, clock=clock, **settings)
    old = send(store, 6 * PER_FILE, size=SIZE, UNIQ_KEY="u")
    send(store, 25, topic="small")
    store.flush()
    clock.advance(2 * HOUR)
    young = send(store, 3 * PER_FILE, size=SIZE, UNIQ_KEY="u")
    store.flush()
    store.sync_queues()
    retention = Retention(store)
    retention.request()
    disk.crash_after(operations)
    try:
        while retention.run().log_files:
            pass
    except PowerCut:
        pass
    for seed in range(4):
        with open_small("/store", disk=disk.power_cut(seed), clock=clock, **settings) as again:
            found = offsets_of(read_all(again))
            kept = [offset for offset in old if offset >= again.log.start] + young
            assert found == kept
            assert again.min_offset(TOPIC, 0) == len(old) + len(young) - len(kept)
            assert again.max_offset("small", 0) == 25
            assert again.append(TOPIC, 0, b"").queue_offset == len(old) + len(young)
