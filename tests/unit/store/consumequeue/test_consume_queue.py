"""One consume queue: units in files, fillers, what is taken over when it is opened, what expires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.store import StoreDamagedError
from orbitmq.store.consumequeue.consume_queue import FILLER, UNIT, UNIT_SIZE, ConsumeQueue
from orbitmq.store.consumequeue.unit_file import KEPT_BYTES, TAIL_BYTES
from orbitmq.testing import MemoryDisk
from support.store.stores import QUEUE_FILE, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

DIRECTORY = f"/store/consumequeue/{TOPIC}/0"
PER_FILE = QUEUE_FILE // UNIT_SIZE
FOREVER = 1 << 62


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def queue(disk: MemoryDisk) -> ConsumeQueue:
    return new_queue(disk)


def new_queue(disk: MemoryDisk) -> ConsumeQueue:
    return ConsumeQueue(disk, DIRECTORY, TOPIC, 0, QUEUE_FILE)


def opened(disk: MemoryDisk, log_start: int = 0, log_end: int = FOREVER, *, crashed: bool = False) -> ConsumeQueue:
    queue = new_queue(disk)
    queue.open(log_start, log_end, (lambda *_: True) if crashed else None)
    return queue


def put(queue: ConsumeQueue, queue_offsets: Iterable[int], *, written: bool = True) -> None:
    """Enter a record for each of these queue offsets, with its physical offset a hundred times as large."""
    for queue_offset in queue_offsets:
        assert queue.put(queue_offset, 100 * queue_offset, 100, queue_offset)
    if written:
        queue.write_out(FILLER)


def numbers(queue: ConsumeQueue) -> list[int | None]:
    """The queue offset that each unit from the smallest on says, None for a filler."""
    found: list[int | None] = []
    while len(found) < queue.max_offset - queue.min_offset:
        units = queue.units(queue.min_offset + len(found), 1 << 20)
        assert units
        found += [None if unit == UNIT.unpack(FILLER) else unit[2] for unit in UNIT.iter_unpack(units)]
    return found


def files(disk: MemoryDisk) -> list[int]:
    return [int(name) // UNIT_SIZE for name in disk.list(DIRECTORY)]


# Units and files


def test_a_unit_is_offset_size_and_tags_code(queue: ConsumeQueue, disk: MemoryDisk) -> None:
    queue.put(0, 0, 115, 2598919)
    queue.write_out(FILLER)
    unit = disk.read(f"{DIRECTORY}/{0:020d}")[:UNIT_SIZE]
    assert unit.hex() == "0000000000000000" + "00000073" + "000000000027a807"
    assert queue.unit(0) == (0, 115, 2598919)
    assert queue.unit(1) is None


@pytest.mark.parametrize("count", [1, 9, 10, 11, 199, 250, 1000])
def test_units_are_read_whether_they_are_in_a_file_or_still_in_memory(
    queue: ConsumeQueue, disk: MemoryDisk, count: int
) -> None:
    put(queue, range(count), written=False)
    assert numbers(queue) == list(range(count))
    assert files(disk) == []
    queue.write_out(FILLER)
    assert numbers(queue) == list(range(count))
    assert files(disk) == list(range(0, count, PER_FILE))
    assert queue.tail_size < TAIL_BYTES
    put(queue, range(count, count + 5), written=False)
    assert numbers(queue) == list(range(count + 5))


def test_a_read_goes_on_in_memory_where_the_files_end(queue: ConsumeQueue) -> None:
    put(queue, range(28))
    put(queue, range(28, 35), written=False)
    assert numbers(queue) == list(range(35))
    assert len(queue.units(25, 100)) == 10 * UNIT_SIZE
    assert len(queue.units(25, 8)) == 8 * UNIT_SIZE


def test_queues_that_grow_alike_are_not_full_at_the_same_time(disk: MemoryDisk) -> None:
    made = [ConsumeQueue(disk, f"{DIRECTORY}{number}", "t", number, UNIT_SIZE * 1000) for number in range(64)]
    first = [queue.full_at for queue in made]
    assert len({size // 1024 for size in first}) == 4
    assert max(first) <= TAIL_BYTES
    assert min(first) > KEPT_BYTES
    for queue in made:
        put(queue, range(250))
        assert (queue.full_at, queue.tail_size) == (TAIL_BYTES, KEPT_BYTES // UNIT_SIZE * UNIT_SIZE)


def test_a_read_ends_with_its_file(queue: ConsumeQueue) -> None:
    put(queue, range(300))
    assert len(queue.units(3, 100)) == (PER_FILE - 3) * UNIT_SIZE
    assert len(queue.units(3, 2)) == 2 * UNIT_SIZE
    assert queue.units(300, 1) == queue.units(-1, 1) == b""


def test_short_writes_are_completed(queue: ConsumeQueue, disk: MemoryDisk) -> None:
    disk.short_writes(0.9)
    put(queue, range(55))
    assert numbers(opened(disk)) == list(range(55))


def test_a_record_that_is_there_is_not_entered_again(queue: ConsumeQueue, disk: MemoryDisk) -> None:
    put(queue, range(5))
    assert not queue.put(4, 400, 100, 4)
    assert not queue.put(2, 200, 100, 2)
    assert numbers(queue) == list(range(5))
    assert not opened(disk).put(4, 400, 100, 4)


def test_only_what_was_written_since_is_to_be_synced(queue: ConsumeQueue, disk: MemoryDisk) -> None:
    put(queue, range(15))
    taken = queue.take_unsynced()
    assert [int(path[-20:]) // UNIT_SIZE for path in taken[0]] == [0, PER_FILE]
    assert taken[1]
    assert queue.take_unsynced() == ([], False)
    put(queue, range(15, 16))
    assert queue.take_unsynced() == ([f"{DIRECTORY}/{QUEUE_FILE:020d}"], False)
    queue.give_back_unsynced(taken)
    assert queue.take_unsynced() == taken


# Fillers


@pytest.mark.parametrize("first", [1, 9, 10, 13])
def test_a_queue_that_begins_later_has_fillers_in_front(queue: ConsumeQueue, disk: MemoryDisk, first: int) -> None:
    put(queue, range(first, first + 3))
    assert (queue.min_offset, queue.max_offset) == (first, first + 3)
    base = first // PER_FILE * PER_FILE
    assert files(disk)[0] == base
    content = disk.read(f"{DIRECTORY}/{base * UNIT_SIZE:020d}")
    assert content.startswith(FILLER * (first - base) + UNIT.pack(100 * first, 100, first))
    assert FILLER.hex() == "0000000000000000" + "7fffffff" + "0000000000000000"
    again = opened(disk)
    assert (again.min_offset, again.max_offset, again.next_offset) == (first, first + 3, first + 3)
    assert numbers(again) == [first, first + 1, first + 2]


def test_fillers_keep_the_numbers_of_records_behind_a_gap(queue: ConsumeQueue, disk: MemoryDisk) -> None:
    put(queue, [0, 1, 7, 8, 25])
    expected = [0, 1, *[None] * 5, 7, 8, *[None] * 16, 25]
    for found in (queue, opened(disk)):
        assert numbers(found) == expected
        assert (found.min_offset, found.max_offset) == (0, 26)
    assert queue.gaps == 2


@pytest.mark.parametrize("gap", [(2, 5), (1, 9), (5, 14), (3, 23), (12, 29)])
def test_units_behind_the_end_of_the_log_are_dropped_despite_fillers(
    gap: tuple[int, int],
) -> None:
    """Fillers lead to no record, so they say nothing of where the log ends."""
    present = [number for number in range(30) if not gap[0] <= number < gap[1]]
    for log_end in range(0, 3100, 50):
        inside = [number for number in present if 100 * number < log_end]
        end = inside[-1] + 1 if inside else 0
        for way in ("clean", "crashed", "truncated"):
            disk = MemoryDisk()
            put(new_queue(disk), present)
            found = opened(disk, log_end=FOREVER if way == "truncated" else log_end, crashed=way == "crashed")
            if way == "truncated":
                found.truncate_to_log(log_end)
            assert [number for number in numbers(found) if number is not None] == inside
            assert found.max_physical == 100 * end
            # Fillers directly behind may stay: the numbers were used.
            assert found.max_offset in {end, gap[1] if end == gap[0] else end}


def test_an_older_number_from_a_newer_record_starts_the_queue_again(queue: ConsumeQueue, disk: MemoryDisk) -> None:
    put(queue, range(25))
    assert queue.put(0, 5000, 100, 70)
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (0, 1, 1)
    assert queue.unit(0) == (5000, 100, 70)
    queue.write_out(FILLER)
    assert files(disk) == [0]
    assert opened(disk).max_offset == 1


@pytest.mark.parametrize("number", [-1, 1, 12, 24, 200, 1 << 40])
def test_a_record_with_an_impossible_number_gets_no_unit(queue: ConsumeQueue, number: int) -> None:
    """No CRC covers the number; a damaged one must neither cut the queue nor fill it with fillers."""
    put(queue, range(25))
    assert not queue.put(number, 5000, 100, 0)
    assert numbers(queue) == list(range(25))
    assert queue.put(25, 5100, 100, 25)
    assert numbers(queue) == list(range(26))


@pytest.mark.parametrize("number", [1 << 59, (1 << 63) - 1])
def test_no_queue_begins_where_no_file_can_be(queue: ConsumeQueue, number: int) -> None:
    assert not queue.put(number, 100, 100, 0)
    assert queue.put(0, 100, 100, 0)


def test_a_record_that_belongs_into_a_gap_shows_that_the_number_behind_it_was_damaged(queue: ConsumeQueue) -> None:
    put(queue, [0, 1, 9])
    assert queue.put(2, 1000, 100, 2)
    assert numbers(queue) == [0, 1, 2]
    assert queue.next_offset == 3


# Opening


def test_an_unknown_queue_is_empty(disk: MemoryDisk) -> None:
    found = opened(disk)
    assert (found.min_offset, found.max_offset, found.next_offset, found.max_physical) == (0, 0, 0, 0)


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 25])
@pytest.mark.parametrize("crashed", [False, True])
def test_an_opened_queue_ends_with_its_last_unit(disk: MemoryDisk, count: int, crashed: bool) -> None:
    put(new_queue(disk), range(count))
    found = opened(disk, crashed=crashed)
    assert numbers(found) == list(range(count))
    assert found.next_offset == count
    assert found.max_physical == 100 * count
    put(found, range(count, count + 12))
    assert numbers(opened(disk)) == list(range(count + 12))


def test_what_lies_behind_the_end_after_a_crash_is_never_found_again(disk: MemoryDisk) -> None:
    put(new_queue(disk), range(25))
    found = opened(disk, log_end=750, crashed=True)
    assert numbers(found) == list(range(8))
    assert files(disk) == [0]
    assert not any(disk.read(f"{DIRECTORY}/{0:020d}")[8 * UNIT_SIZE :])
    assert numbers(opened(disk)) == list(range(8))


def test_a_hole_that_a_crash_left_ends_the_queue(disk: MemoryDisk) -> None:
    put(new_queue(disk), range(25))
    disk.pwrite(f"{DIRECTORY}/{QUEUE_FILE:020d}", 0, bytes(60))
    found = opened(disk, log_end=1000, crashed=True)
    assert numbers(found) == list(range(10))
    put(found, range(10, 12))
    assert numbers(opened(disk)) == list(range(12))


def test_a_unit_that_the_log_does_not_confirm_is_dropped(disk: MemoryDisk) -> None:
    put(new_queue(disk), range(25))
    asked = []
    found = new_queue(disk)

    def confirm(topic: str, queue_id: int, queue_offset: int, offset: int, size: int) -> bool:
        asked.append((topic, queue_id, queue_offset, offset, size))
        return queue_offset < 22

    found.open(0, FOREVER, confirm)
    assert asked == [(TOPIC, 0, number, 100 * number, 100) for number in (24, 23, 22, 21)]
    assert numbers(found) == list(range(22))


def test_a_file_of_another_size_is_refused_by_name(disk: MemoryDisk) -> None:
    disk.create(f"{DIRECTORY}/{0:020d}", 100)
    with pytest.raises(StoreDamagedError, match=r"0{20} has 100 bytes .* have 200: give the broker.conf"):
        opened(disk)


def test_a_file_with_an_impossible_name_is_refused_by_name(disk: MemoryDisk) -> None:
    disk.create(f"{DIRECTORY}/99999999999999999999", QUEUE_FILE)

    with pytest.raises(StoreDamagedError, match="99999999999999999999 has a name that no file"):
        opened(disk)


def test_a_file_that_a_crash_left_without_its_size_is_empty(disk: MemoryDisk) -> None:
    put(new_queue(disk), range(10))
    disk.create(f"{DIRECTORY}/{QUEUE_FILE:020d}", 0)
    found = opened(disk, crashed=True)
    assert numbers(found) == list(range(10))
    put(found, range(10, 22))
    assert numbers(opened(disk)) == list(range(22))


def test_a_missing_file_is_noticed(disk: MemoryDisk) -> None:
    put(new_queue(disk), range(25))
    disk.remove(f"{DIRECTORY}/{QUEUE_FILE:020d}")
    found = opened(disk)
    assert found.gaps
    assert numbers(found) == list(range(20, 25))


# Shortening and retention


@pytest.mark.parametrize("end", [0, 5, 10, 15, 24, 25])
@pytest.mark.parametrize("written", [False, True])
def test_truncating_to_the_log_forgets_what_lies_behind_its_end(
    queue: ConsumeQueue, disk: MemoryDisk, end: int, written: bool
) -> None:
    put(queue, range(25), written=written)
    queue.truncate_to_log(100 * end)
    assert numbers(queue) == list(range(end))
    assert (queue.next_offset, queue.max_physical) == (end, 100 * end)
    put(queue, range(end, end + 3))
    assert numbers(queue) == numbers(opened(disk)) == list(range(end + 3))


@pytest.mark.parametrize("log_start", range(0, 3200, 150))
def test_the_smallest_offset_follows_the_start_of_the_log(disk: MemoryDisk, log_start: int) -> None:
    queue = new_queue(disk)
    put(queue, range(30))
    first = min(30, -(-log_start // 100))
    for found in (queue, opened(disk, log_start), new_queue(disk)):
        if found.max_offset == 0:
            found.open(0, FOREVER)
        found.correct_min_offset(log_start)
        assert (found.min_offset, found.max_offset) == (first, 30)
    removed = queue.expire(log_start)
    # The last file stays even if all of it expired, to keep the numbering.
    assert removed == min(first // PER_FILE, 2)
    assert files(disk) == [0, 10, 20][removed:]
    again = opened(disk, log_start)
    assert (again.min_offset, again.max_offset, again.next_offset) == (first, 30, 30)
    put(again, [30])
    assert again.max_offset == 31


def test_numbering_continues_after_everything_expired(queue: ConsumeQueue, disk: MemoryDisk) -> None:
    put(queue, range(20))
    assert queue.expire(FOREVER) == 1
    assert (queue.min_offset, queue.max_offset) == (20, 20)
    found = opened(disk, log_start=5000, log_end=9000)
    assert (found.min_offset, found.max_offset, found.next_offset) == (20, 20, 20)


def test_the_smallest_offset_skips_fillers(disk: MemoryDisk) -> None:
    queue = new_queue(disk)
    put(queue, [0, 1, 7, 8, 25])
    for log_start, first in ((0, 0), (100, 1), (101, 7), (700, 7), (801, 25), (2501, 26)):
        found = opened(disk, log_start)
        assert found.min_offset == first
