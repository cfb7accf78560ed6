"""Queues and index that contradict the log when a store is opened: lost, behind, ahead, of an earlier life."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.message.record import decode_record
from orbitmq.store import GetStatus, MessageStore, StoreDamagedError, StoredMessage
from orbitmq.store.consumequeue.consume_queue import FILLER, UNIT, UNIT_SIZE
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import (
    LOG_FILE,
    QUEUE_FILE,
    T0,
    TOPIC,
    all_queues,
    edit,
    edit_log,
    offsets_of,
    open_small,
    read_all,
    send,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orbitmq.protocol.message.record import Record

LIGHT: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True}
QUEUES = 3


def fill(store: MessageStore, count: int = 90) -> None:
    """Messages over three queues, each in two light queues, with keys; enough for several files of everything."""
    clock = store.clock
    assert isinstance(clock, ManualClock)
    for number in range(count):
        light = f"%LMQ%{number % 2},%LMQ%all"
        properties = encode({"KEYS": f"k{number}", "INNER_MULTI_DISPATCH": light})
        store.append(StoredMessage(TOPIC, number % QUEUES, b"%d" % number * 30, properties))
        clock.advance(100)


def open_light(root: Path) -> MessageStore:
    # Later than anything in the store, as a restart is.
    return open_small(root, clock=ManualClock(T0 + 3_600_000), **LIGHT)


def written(root: Path, *, crashed: bool) -> dict[tuple[str, int], list[Record]]:
    """Write a store; returns what its queues hold."""
    store = open_small(root, clock=ManualClock(T0), **LIGHT)
    fill(store, 60)
    store.flush()
    store.sync_queues()
    fill(store, 30)
    held = all_queues(store)
    if crashed:
        store.flush()
        store.sync_queues()
        store.abandon()
    else:
        store.close()
    return held


def keys_found(store: MessageStore) -> list[int]:
    return [number for number in range(60) if store.query(TOPIC, f"k{number}").records]


def queue_folder(root: Path, topic: str = TOPIC, queue_id: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id)


def lose_queue(root: Path) -> None:
    shutil.rmtree(queue_folder(root, queue_id=1))


def lose_light_queue(root: Path) -> None:
    shutil.rmtree(queue_folder(root, "%LMQ%1"))


def lose_topic(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / TOPIC)


def lose_all_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def lose_last_file(root: Path) -> None:
    max(queue_folder(root).iterdir()).unlink()


def lose_middle_file(root: Path) -> None:
    (queue_folder(root) / f"{QUEUE_FILE:020d}").unlink()


def lose_middle_file_of_light_queue(root: Path) -> None:
    (queue_folder(root, "%LMQ%all") / f"{3 * QUEUE_FILE:020d}").unlink()


def lose_files(root: Path) -> None:
    for file in queue_folder(root, queue_id=2).iterdir():
        file.unlink()


def lose_tail(root: Path) -> None:
    edit(max(queue_folder(root).iterdir()), 5 * UNIT_SIZE, bytes(QUEUE_FILE - 5 * UNIT_SIZE))


def lose_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def lose_newest_index_file(root: Path) -> None:
    max((root / "index").iterdir()).unlink()


def empty_newest_index_file(root: Path) -> None:
    max((root / "index").iterdir()).write_bytes(b"")


def lose_everything_derived(root: Path) -> None:
    lose_all_queues(root)
    lose_index(root)
    (root / "checkpoint").unlink()
    (root / "orbitmq.queues").unlink(missing_ok=True)


LOSSES = [
    lose_queue,
    lose_light_queue,
    lose_topic,
    lose_all_queues,
    lose_last_file,
    lose_middle_file,
    lose_middle_file_of_light_queue,
    lose_files,
    lose_tail,
    lose_index,
    lose_newest_index_file,
    empty_newest_index_file,
    lose_everything_derived,
]


@pytest.mark.parametrize("lose", LOSSES)
def test_what_a_closed_store_lost_is_written_again_from_the_log(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    held = written(tmp_path, crashed=False)
    files = tree(tmp_path, "consumequeue")
    lose(tmp_path)
    with open_light(tmp_path) as store:
        assert store.recovery.clean
        assert all_queues(store) == held
        assert [queue.next_offset for queue in store.queues.all()] == [queue.end for queue in store.queues.all()]
        assert keys_found(store) == list(range(60))
    assert tree(tmp_path, "consumequeue") == files
    with open_light(tmp_path) as store:
        assert all_queues(store) == held
        assert not store.recovery.rebuilt_queues
        assert keys_found(store) == list(range(60))


@pytest.mark.parametrize("lose", [loss for loss in LOSSES if loss not in {lose_last_file, lose_files, lose_tail}])
def test_what_a_crashed_store_lost_is_written_again_from_the_log(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    written(tmp_path, crashed=False)
    store = open_light(tmp_path)
    fill(store, 5)
    store.flush()
    store.sync_queues()
    held = all_queues(store)
    store.abandon()
    lose(tmp_path)
    with open_light(tmp_path) as store:
        assert not store.recovery.clean
        assert all_queues(store) == held
        assert keys_found(store) == list(range(60))
    with open_light(tmp_path) as store:
        assert store.recovery.clean
        assert all_queues(store) == held


@pytest.mark.parametrize("lose", [lose_middle_file, lose_middle_file_of_light_queue, lose_all_queues, lose_tail])
def test_a_store_of_another_broker_is_repaired_too(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    """RocketMQ keeps no note of how long its queues are."""
    held = written(tmp_path, crashed=False)
    (tmp_path / "orbitmq.queues").unlink()
    lose(tmp_path)
    with open_light(tmp_path) as store:
        assert all_queues(store) == held


def test_a_queue_without_its_first_file_begins_later_where_nobody_knows_better(tmp_path: Path) -> None:
    held = written(tmp_path, crashed=False)
    (tmp_path / "orbitmq.queues").unlink()
    (queue_folder(tmp_path) / f"{0:020d}").unlink()
    with open_light(tmp_path) as store:
        assert store.min_offset(TOPIC, 0) in {0, 10}
        assert read_all(store) == held[TOPIC, 0][store.min_offset(TOPIC, 0) :]


def test_a_note_of_the_queues_that_cannot_be_read_costs_time_only(tmp_path: Path) -> None:
    held = written(tmp_path, crashed=False)
    for nonsense in (b"", b"{", b'{"queues":[]}', b'{"queues":{"T":{"x":"y"}},"indexedTo":0,"indexEnd":0}'):
        (tmp_path / "orbitmq.queues").write_bytes(nonsense)
        with open_light(tmp_path) as store:
            assert all_queues(store) == held
            assert store.recovery.started_at == 0


# Ahead of the log


def test_a_queue_is_written_again_with_the_records_behind_a_hole(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 20, size=300)
        send(store, queue_id=1)
    shutil.rmtree(tmp_path / "consumequeue" / TOPIC / "0")
    # In the first file, and in the last, where nothing but zeros follows the end of the log.
    for lost in (2, 18):
        edit_log(tmp_path, offsets[lost], bytes(offsets[lost + 1] - offsets[lost]))
    with open_small(tmp_path) as store:
        assert store.recovery.rebuilt_queues == [(TOPIC, 0)]
        assert offsets_of(read_all(store)) == [offsets[number] for number in range(20) if number not in {2, 18}]
        assert store.max_offset(TOPIC, 0) == 20


@pytest.mark.parametrize("lost_files", [1, 2])
def test_queues_and_index_ahead_of_the_log_forget_what_a_crash_lost(tmp_path: Path, lost_files: int) -> None:
    held = written(tmp_path, crashed=True)
    logs = sorted((tmp_path / "commitlog").iterdir())
    for file in logs[-lost_files:]:
        file.unlink()
    end = (len(logs) - lost_files) * LOG_FILE
    kept = {
        queue: [record for record in records if record.physical_offset < end] for queue, records in held.items()
    }
    with open_light(tmp_path) as store:
        assert all_queues(store) == kept
        assert store.log.end == max(record.physical_offset + record.size for record in kept["%LMQ%all", 0])
        # New records take the place of the lost ones, in the queues and in the index.
        properties = encode({"KEYS": "new", "INNER_MULTI_DISPATCH": "%LMQ%all"})
        new = [store.append(StoredMessage(TOPIC, queue_id, b"new", properties)) for queue_id in range(QUEUES)]
        assert [one.queue_offset for one in new] == [len(kept[TOPIC, queue_id]) for queue_id in range(QUEUES)]
    with open_light(tmp_path) as store:
        for queue_id in range(QUEUES):
            assert offsets_of(read_all(store, TOPIC, queue_id)) == [
                *offsets_of(kept[TOPIC, queue_id]),
                new[queue_id].offset,
            ]
        assert len(read_all(store, "%LMQ%all")) == len(kept["%LMQ%all", 0]) + QUEUES
        found = [decode_record(record).physical_offset for record in store.query(TOPIC, "new").records]
        assert found == [one.offset for one in new]


@pytest.mark.parametrize("touched", [False, True])
def test_units_of_lost_records_never_reappear(tmp_path: Path, touched: bool) -> None:
    """Nobody may have looked at such a queue before the log grew past the place to which its unit leads."""
    clock = ManualClock(T0)
    store = open_small(tmp_path, clock=clock, message_index_enable=False)
    send(store, 3, topic="Quiet")
    for _ in range(2):
        clock.advance(10_000)
        send(store, 10, size=600)
    store.flush()
    store.sync_queues()
    (lost,) = send(store, topic="Quiet", size=100)
    end = store.log.end
    store.flush()
    store.sync_queues()
    store.abandon()
    # The disk had written the queue's page and not yet the log's, nor the last checkpoint.
    edit_log(tmp_path, lost, bytes(end - lost))
    with open_small(tmp_path, clock=clock, message_index_enable=False) as store:
        assert store.recovery.started_at > 3 * 100, "the start is to see no record of the quiet queue"
        assert store.log.end == lost
        if touched:
            assert store.max_offset("Quiet", 0) == 3
        send(store, 20)
    with open_small(tmp_path, clock=clock, message_index_enable=False) as store:
        assert store.recovery.clean
        assert store.max_offset("Quiet", 0) == 3
        assert len(read_all(store, "Quiet")) == 3
        assert store.append(StoredMessage("Quiet", 0, b"")).queue_offset == 3


@pytest.mark.parametrize("seed", range(10))
def test_what_was_wiped_after_a_crash_stays_wiped_when_the_power_fails(seed: int) -> None:
    clock = ManualClock(T0)
    disk = MemoryDisk(seed, clock=clock)
    file = f"/store/commitlog/{0:020d}"
    with open_small("/store", disk=disk, clock=clock) as store:
        send(store, 8, topic="Quiet")
    store = open_small("/store", disk=disk, clock=clock)
    lost = send(store, 7, topic="Quiet")[0]
    store.sync_queues()
    disk = disk.kill()
    disk.pwrite(file, lost, bytes(LOG_FILE - lost))
    with open_small("/store", disk=disk, clock=clock) as store:
        assert store.log.end == lost
        send(store, 9)
    with open_small("/store", disk=disk.power_cut(), clock=clock) as store:
        assert store.recovery.clean
        assert store.max_offset("Quiet", 0) == 8
        assert len(read_all(store)) == 9


# Topics that are deleted


@pytest.mark.parametrize("again", [0, 2, 12, 40])
@pytest.mark.parametrize("ending", ["closed", "crashed", "without queues"])
def test_a_topic_deleted_and_made_again_is_numbered_from_its_new_start(
    tmp_path: Path, again: int, ending: str
) -> None:
    store = open_small(tmp_path)
    send(store, 25, KEYS="old")
    send(store, 5, topic="Other")
    store.sync_queues()
    store.delete_topic(TOPIC)
    assert store.get(TOPIC, 0, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert not queue_folder(tmp_path).exists()
    new = send(store, again)
    assert offsets_of(read_all(store)) == new
    if ending == "crashed":
        store.abandon()
    else:
        store.close()
    if ending == "without queues":
        shutil.rmtree(tmp_path / "consumequeue")
    with open_small(tmp_path) as store:
        if again:
            assert offsets_of(read_all(store)) == new
            assert send(store) == [store.recovery.log_end]
            assert store.max_offset(TOPIC, 0) == again + 1
        elif ending == "closed":
            assert store.queues.names() == ["Other"]
        assert len(read_all(store, "Other")) == 5


# After retention


def test_queues_follow_a_log_without_its_first_files(tmp_path: Path) -> None:
    held = written(tmp_path, crashed=False)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    (tmp_path / "commitlog" / f"{LOG_FILE:020d}").unlink()
    kept = {
        queue: [record for record in records if record.physical_offset >= 2 * LOG_FILE]
        for queue, records in held.items()
    }
    with open_light(tmp_path) as store:
        assert store.log.start == 2 * LOG_FILE
        assert all_queues(store) == kept
        for (topic, queue_id), records in kept.items():
            first = len(held[topic, queue_id]) - len(records)
            assert store.min_offset(topic, queue_id) == first
            assert store.max_offset(topic, queue_id) == len(held[topic, queue_id])
            assert store.get(topic, queue_id, first - 1).status is GetStatus.OFFSET_TOO_SMALL


def test_queues_built_from_a_log_without_its_first_files_begin_with_fillers(tmp_path: Path) -> None:
    held = written(tmp_path, crashed=False)
    originals = tree(tmp_path, "consumequeue")
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    lose_everything_derived(tmp_path)
    with open_light(tmp_path) as store:
        for (topic, queue_id), records in held.items():
            kept = [record for record in records if record.physical_offset >= LOG_FILE]
            assert read_all(store, topic, queue_id) == kept
            assert store.min_offset(topic, queue_id) == len(records) - len(kept)
            assert store.max_offset(topic, queue_id) == len(records)
    for path, content in tree(tmp_path, "consumequeue").items():
        # Where the log has no record any more, and nowhere else, a unit is a filler.
        expected = bytearray(originals[path])
        for at in range(0, QUEUE_FILE, UNIT_SIZE):
            offset, size, _ = UNIT.unpack_from(expected, at)
            if size and offset < LOG_FILE:
                expected[at : at + UNIT_SIZE] = FILLER
        assert content == bytes(expected), path
    assert FILLER.hex() == "0000000000000000" + "7fffffff" + "0000000000000000"


def test_a_queue_of_which_everything_expired_keeps_its_numbering(tmp_path: Path) -> None:
    for crashed in (False, True):
        root = tmp_path / str(crashed)
        with open_small(root) as store:
            send(store, 25, topic="Old")
            send(store, 20, size=600)
        (root / "commitlog" / f"{0:020d}").unlink()
        if crashed:
            (root / "abort").touch()
        for _ in range(2):
            with open_small(root) as store:
                assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (25, 25)
                assert store.get("Old", 0, 25).status is GetStatus.OFFSET_OVERFLOW_ONE
        with open_small(root) as store:
            assert store.append(StoredMessage("Old", 0, b"")).queue_offset == 25
            assert len(read_all(store, "Old")) == 1


# Strange records


def test_a_record_that_no_queue_can_hold_does_not_stop_a_store(tmp_path: Path) -> None:
    """A master may have stored a topic that is not stored here."""
    with open_small(tmp_path / "master") as master:
        offsets = send(master, 3, topic="Topic_X")
        raw = bytearray(master.log.files.mapped(0).buffer[: master.log.end])
    place = raw.index(b"Topic_X", offsets[1])
    raw[place : place + 7] = b"Topic/X"
    with open_small(tmp_path / "replica") as store:
        store.append_raw(bytes(raw), 0)
        store.catch_up()
        assert offsets_of(read_all(store, "Topic_X")) == [offsets[0], offsets[2]]
        store.abandon()
    with open_small(tmp_path / "replica") as store:
        assert store.queues.names() == ["Topic_X"]
        assert store.record(offsets[1]) is not None


def test_an_index_file_cut_short_is_refused_with_what_to_do(tmp_path: Path) -> None:
    written(tmp_path, crashed=False)
    newest = max((tmp_path / "index").iterdir())
    os.truncate(newest, 100)
    with pytest.raises(StoreDamagedError, match=r"has 100 bytes.* or delete the index directory"):
        open_light(tmp_path)
    lose_index(tmp_path)
    with open_light(tmp_path) as store:
        assert keys_found(store) == list(range(60))
