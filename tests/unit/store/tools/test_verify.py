"""Verifying finds every kind of damage, says where it is, and takes what a crash leaves for what it is."""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode
from orbitmq.store import LocalDisk, StoredMessage
from orbitmq.store.config_tables import TOPICS
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.findings import MAX_PER_KIND, Kind
from orbitmq.store.tools.verify import Report, State, verify
from orbitmq.testing import ManualClock
from support.store import golden
from support.store.stores import LOG_FILE, QUEUE_FILE, T0, TOPIC, edit, edit_log, open_small, send, tree

if TYPE_CHECKING:
    from pathlib import Path

UNIT = 20


def verified(root: str | Path, conf: dict[str, str] | None = None, **options: Any) -> Report:
    disk = LocalDisk()
    return verify(disk, survey(disk, str(root), conf), **options)


def kinds(report: Report) -> dict[Kind, int]:
    return dict(report.findings.counts)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A closed store of 60 messages in two queues, each with keys and a tag."""
    with open_small(tmp_path) as store:
        for number in range(60):
            send(store, queue_id=number % 2, KEYS=f"key{number}", TAGS="tag", UNIQ_KEY=f"id{number}")
    return str(tmp_path)


def offset_of(root: str, number: int) -> int:
    """Where the record of a message of the ``store`` fixture lies in the log."""
    unit = tree(root, "consumequeue")[f"consumequeue/{TOPIC}/{number % 2}/{number // 20 * QUEUE_FILE:020d}"]
    at = number // 2 * UNIT % QUEUE_FILE
    return int.from_bytes(unit[at : at + 8], "big")


# Stores of Apache RocketMQ


@pytest.mark.parametrize("name", golden.SETS)
def test_a_store_of_rocketmq_is_sound(name: str, tmp_path: Path) -> None:
    report = verified(golden.unpack(name, tmp_path))
    assert report.is_sound, report.findings.named
    expected = golden.expected_offsets(name)
    assert report.records == expected["records"]
    assert (report.log_start, report.log_end) == (expected["minPhyOffset"], expected["maxPhyOffset"])
    assert report.state is (State.CRASHED if expected["abortFilePresent"] else State.CLOSED)


def test_the_report_predicts_recovery_after_a_kill(tmp_path: Path) -> None:
    report = verified(golden.unpack("killed", tmp_path))
    # 44 records have no unit yet, and 132 of their keys are in no index file.
    assert (report.units_to_write, report.units_to_drop, report.keys_to_write) == (44, 0, 132)
    assert len(report.index_files_to_drop) == 2


def test_units_of_records_that_a_crash_took_will_be_dropped(tmp_path: Path) -> None:
    report = verified(golden.unpack("torn", tmp_path))
    assert (report.units_to_write, report.units_to_drop) == (0, 37)
    assert report.log_end == 703868


@pytest.mark.parametrize(
    ("name", "folder"),
    [("basic", "consumequeue"), ("basic", "index"), ("extra", "batchconsumequeue"), ("extra", "consumequeue")],
)
def test_no_bit_of_queues_and_index_flips_unseen(name: str, folder: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    layout = survey(LocalDisk(), root)
    rng = random.Random(3)
    files = sorted(tree(root, folder).items())
    for _ in range(25):
        path, contents = rng.choice(files)
        at = rng.randrange(len(contents.rstrip(b"\0")))
        flipped = bytes([contents[at] ^ 1 << rng.randrange(8)])
        edit(os.path.join(root, path), at, flipped)
        report = verify(LocalDisk(), layout)
        edit(os.path.join(root, path), at, contents[at : at + 1])
        assert not report.is_sound, f"{path} at {at}"
        assert any(os.path.join(root, path) == finding.path for finding in report.findings.named), path


# Damage in the log


def test_a_body_that_fails_its_crc_is_named(store: str) -> None:
    offset = offset_of(store, 5)
    edit_log(store, offset + 90, b"?")
    report = verified(store)
    assert kinds(report) == {Kind.BODY_CRC: 1}
    (finding,) = report.findings.named
    assert (finding.physical_offset, finding.topic, finding.queue_id, finding.queue_offset) == (offset, TOPIC, 1, 2)
    assert finding.path == os.path.join(store, "commitlog", f"{0:020d}")


def test_many_damaged_bodies_are_all_counted_and_some_named(tmp_path: Path) -> None:
    count = MAX_PER_KIND + 50
    with open_small(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        offsets = send(store, count + 1)
    for offset in offsets[:-1]:
        edit_log(tmp_path, offset + 88, b"?", file_size=1 << 20)
    report = verified(tmp_path)
    assert report.findings.counts[Kind.BODY_CRC] == count
    assert len(report.findings.named) == MAX_PER_KIND


def test_bytes_that_are_no_record_are_located(store: str) -> None:
    offset = offset_of(store, 7)
    edit_log(store, offset, b"\xff\xff\xff\xff")
    report = verified(store)
    assert report.findings.counts[Kind.LOG_DAMAGE] == 1
    damage = next(finding for finding in report.findings.named if finding.kind is Kind.LOG_DAMAGE)
    assert damage.physical_offset == offset
    # Its unit and its keys now lead to nothing.
    assert report.findings.counts[Kind.UNIT_STRAY] == 1
    assert report.findings.counts[Kind.INDEX_WRONG] == 3
    assert report.records == 59


def test_zeros_in_the_middle_of_the_log_hide_nothing_behind_them(store: str) -> None:
    offset = offset_of(store, 8)
    edit_log(store, offset, bytes(offset_of(store, 10) - offset))
    report = verified(store)
    assert report.findings.counts[Kind.LOG_DAMAGE] == 1
    assert report.records == 58


def test_a_missing_and_a_short_log_file_are_named_and_the_rest_is_checked(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 60, size=200)
    short, missing, *others = (str(path) for path in sorted((tmp_path / "commitlog").iterdir()))
    assert len(others) > 1
    os.remove(missing)
    os.truncate(short, 1000)
    report = verified(tmp_path)
    named = [finding.path for finding in report.findings.named if finding.kind is Kind.LOG_FILE]
    assert named == [short, missing]
    assert report.findings.counts[Kind.UNIT_STRAY] > 0
    assert report.records > 20


def test_a_topic_that_changed_in_a_record_leaves_a_stray_unit(store: str) -> None:
    offset = offset_of(store, 4)
    with open(os.path.join(store, "commitlog", f"{0:020d}"), "rb") as file:
        data = file.read()
    edit_log(store, data.index(TOPIC.encode(), offset), b"TopicB")
    report = verified(store)
    stray = next(finding for finding in report.findings.named if finding.kind is Kind.UNIT_STRAY)
    assert (stray.topic, stray.queue_id, stray.queue_offset, stray.physical_offset) == (TOPIC, 0, 2, offset)


# Damage in the queues


def unit_file(root: str, queue_id: int, number: int) -> str:
    base = number * UNIT // QUEUE_FILE * QUEUE_FILE
    return os.path.join(root, "consumequeue", TOPIC, str(queue_id), f"{base:020d}")


def test_a_zeroed_unit_is_a_record_without_a_unit(store: str) -> None:
    offset = offset_of(store, 6)
    edit(unit_file(store, 0, 3), 3 * UNIT, bytes(UNIT))
    report = verified(store)
    assert kinds(report) == {Kind.UNIT_MISSING: 1}
    (finding,) = report.findings.named
    assert (finding.queue_offset, finding.physical_offset) == (3, offset)


@pytest.mark.parametrize(("at", "what"), [(8, "size"), (12, "tags code")])
def test_a_unit_that_differs_from_its_record_is_reported(at: int, what: str, store: str) -> None:
    edit(unit_file(store, 1, 4), 4 * UNIT + at, b"\x01")
    report = verified(store)
    assert kinds(report) == {Kind.UNIT_WRONG: 1}
    assert what in report.findings.named[0].message


def test_a_unit_past_the_end_of_the_log_is_located(store: str) -> None:
    edit(unit_file(store, 0, 29), 9 * UNIT, (1 << 40).to_bytes(8, "big"))
    report = verified(store)
    assert kinds(report) == {Kind.UNIT_PAST_END: 1, Kind.UNIT_MISSING: 1}


def test_units_missing_at_the_end_of_a_closed_store_are_damage(store: str) -> None:
    os.remove(unit_file(store, 0, 20))
    report = verified(store)
    assert kinds(report) == {Kind.UNIT_MISSING: 10}
    (finding,) = report.findings.named
    assert (finding.count, finding.queue_offset) == (10, 20)


def test_a_queue_file_of_another_size_is_named(store: str) -> None:
    path = unit_file(store, 0, 25)
    os.truncate(path, 130)
    report = verified(store)
    assert kinds(report) == {Kind.QUEUE_FILE: 1, Kind.UNIT_MISSING: 4}
    assert report.findings.named[0].path == path


def test_a_missing_queue_is_reported(store: str) -> None:
    shutil.rmtree(os.path.join(store, "consumequeue", TOPIC, "1"))
    assert kinds(verified(store)) == {Kind.UNIT_MISSING: 30}


# Damage in the index


def test_keys_that_the_index_lacks_are_counted(store: str) -> None:
    files = sorted(tree(store, "index"))
    os.remove(os.path.join(store, files[-1]))
    report = verified(store)
    assert set(kinds(report)) == {Kind.INDEX_MISSING}
    # A file holds 99 of the 180 keys.
    assert report.findings.counts[Kind.INDEX_MISSING] == 180 - 99


def test_a_store_without_an_index_lacks_all_keys(store: str) -> None:
    shutil.rmtree(os.path.join(store, "index"))
    assert kinds(verified(store)) == {Kind.INDEX_MISSING: 180}
    without = verified(store, {"messageIndexEnable": "false"})
    assert without.is_sound
    assert any("messageIndexEnable=false" in note for note in without.notes)


def test_an_entry_of_no_key_is_wrong(store: str) -> None:
    path = os.path.join(store, min(tree(store, "index")))
    edit(path, 40 + 4 * 50 + 20 * 7, b"\x00\x00\x00\x01")
    report = verified(store, {"maxHashSlotNum": "50", "maxIndexNum": "100"})
    assert kinds(report) == {Kind.INDEX_FILE: 1, Kind.INDEX_WRONG: 1, Kind.INDEX_MISSING: 1}
    wrong = next(finding for finding in report.findings.named if finding.kind is Kind.INDEX_WRONG)
    assert "entry 7 " in wrong.message
    assert wrong.path == path


def test_an_index_of_unknown_layout_is_skipped_with_a_note(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 5)
    os.makedirs(tmp_path / "index")
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(40 + 4 * 51 + 20 * 100))
    report = verified(tmp_path)
    assert report.is_sound
    assert any("--conf" in note for note in report.notes)


def test_an_index_without_tags_is_what_older_brokers_leave(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for number in range(10):
            send(store, KEYS=f"key{number}")
    with open(tmp_path / "commitlog" / f"{0:020d}", "r+b") as file:
        data = file.read()
        # As if the messages had tags all along; units carry 0 for them here, which is not the point.
        file.seek(0)
        file.write(data.replace(b"KEYS\x01key", b"TAGS\x01key"))
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "index")
    with open_small(tmp_path):
        pass
    index = tree(tmp_path, "index")
    assert verified(tmp_path).is_sound
    # An index of other records: none of the tags is in it.
    for path, contents in index.items():
        (tmp_path / path).write_bytes(contents[:40].replace(contents[36:40], bytes(4)) + bytes(len(contents) - 40))
    report = verified(tmp_path, {"maxHashSlotNum": "50", "maxIndexNum": "100"})
    assert Kind.INDEX_MISSING not in report.findings.counts
    assert any("no tags" in note for note in report.notes)


# What is no damage


def test_records_of_a_deleted_topic_are_noted(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 20)
        send(store, 5, topic="TopicB")
        store.delete_topic(TOPIC)
    report = verified(tmp_path)
    assert report.is_sound
    assert report.notes == ["20 records belong to topics that were deleted"]


def test_a_deleted_and_recreated_topic_is_sound(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 25)
        store.delete_topic(TOPIC)
        send(store, 12)
    report = verified(tmp_path)
    assert report.is_sound, report.findings.named


@pytest.mark.parametrize("queues_before", [1, 3])
@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("again", [0, 3, 30])
def test_a_topic_that_was_deleted_is_sound_whatever_queues_it_has_now(
    tmp_path: Path, queues_before: int, is_closed: bool, again: int
) -> None:
    (tmp_path / "config").mkdir()
    store = open_small(tmp_path)
    for queue_id in range(queues_before):
        send(store, 10, queue_id=queue_id, KEYS="old")
    store.flush()
    store.sync_queues()
    store.delete_topic(TOPIC)
    if again:
        send(store, again, KEYS="new")
        TOPICS.persist(
            LocalDisk(), str(tmp_path / "config"), TopicConfigSerializeWrapper({TOPIC: TopicConfig(TOPIC, 4, 4)})
        )
    if is_closed:
        store.close()
    else:
        store.flush()
        store.abandon()
    report = verified(tmp_path, {"maxHashSlotNum": "50", "maxIndexNum": "100"})
    assert report.is_sound, report.findings.named
    assert f"{10 * queues_before} records belong to topics that were deleted" in report.notes


def test_a_batch_item_whose_client_gave_it_a_crc_property_is_sound(tmp_path: Path) -> None:
    given = encode({"UNIQ_KEY": "a", "__CRC32#": "0123456789"})
    with open_small(tmp_path) as store:
        store.append_batch(StoredMessage(TOPIC, 0, encode_batch([(0, b"first", given), (0, b"second", given)])))
        send(store, 3)
        store.append_batch(StoredMessage(TOPIC, 0, encode_batch([(0, b"third", given)])))
    report = verified(tmp_path)
    assert report.is_sound, report.findings.named


def test_a_record_that_fails_the_crc_of_its_broker_is_damaged(tmp_path: Path) -> None:
    with open_small(tmp_path, enabled_append_prop_crc=True) as store:
        offsets = send(store, 5)
    for offset in (offsets[0], offsets[3]):
        # The flag is the user's own: nothing but this CRC covers it.
        edit_log(tmp_path, offset + 16, b"\0\0\0\7")
    assert kinds(verified(tmp_path)) == {Kind.PROPERTY_CRC: 2}


def test_expired_records_are_not_missed(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for number in range(60):
            send(store, size=400, KEYS=f"key{number}")
    os.remove(tmp_path / "commitlog" / f"{0:020d}")
    os.remove(tmp_path / "commitlog" / f"{LOG_FILE:020d}")
    report = verified(tmp_path)
    assert report.log_start == 2 * LOG_FILE
    assert report.is_sound, report.findings.named


def test_a_store_that_is_being_written_to_may_lag(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for number in range(30):
            send(store, KEYS=f"key{number}")
        store.flush()
        report = verified(tmp_path, {"maxHashSlotNum": "50", "maxIndexNum": "100"}, is_open=True)
    assert report.state is State.OPEN
    assert report.is_sound, report.findings.named
    assert report.units_to_write == 30


def test_the_same_store_left_by_a_crash_is_to_be_recovered(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    for number in range(30):
        send(store, KEYS=f"key{number}")
    store.flush()
    store.abandon()
    conf = {"maxHashSlotNum": "50", "maxIndexNum": "100"}
    report = verified(tmp_path, conf)
    assert report.state is State.CRASHED
    assert report.is_sound, report.findings.named
    assert (report.units_to_write, report.keys_to_write) == (30, 30)
    with open_small(tmp_path):
        pass
    assert verified(tmp_path).units_to_write == 0


def test_damage_before_the_checkpoint_is_damage_also_after_a_crash(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    with open_small(tmp_path, clock=clock) as store:
        send(store, 10, size=600)
        clock.advance(60_000)
        send(store, 10)
    store = open_small(tmp_path, clock=clock)
    send(store, 5)
    store.flush()
    store.abandon()
    edit(tmp_path / "consumequeue" / TOPIC / "0" / f"{0:020d}", 2 * UNIT, bytes(UNIT))
    report = verified(tmp_path)
    assert report.state is State.CRASHED
    assert report.recovery_start is not None
    assert report.recovery_start >= LOG_FILE
    assert kinds(report) == {Kind.UNIT_MISSING: 1}


def test_a_batch_topic_and_light_queues_are_checked_too(tmp_path: Path) -> None:
    root = golden.unpack("extra", tmp_path)
    shutil.rmtree(os.path.join(root, "batchconsumequeue", "TopicBcq", "0"))
    light = [path for path in tree(root, "consumequeue") if "%LMQ%" in path]
    edit(os.path.join(root, light[0]), 0, bytes(UNIT))
    report = verified(root, golden.config("extra"))
    topics = {finding.topic for finding in report.findings.named if finding.kind is Kind.UNIT_MISSING}
    assert topics == {"TopicBcq", light[0].split("/")[1]}


def test_progress_goes_to_the_end(store: str) -> None:
    seen: list[tuple[int, int]] = []
    verified(store, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert sorted(seen) == seen


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    with open_small(tmp_path):
        pass
    report = verified(tmp_path)
    assert report.is_sound
    assert report.records == 0


def test_verifying_writes_nothing(store: str) -> None:
    before = tree(store, ".")
    edit(unit_file(store, 0, 3), 3 * UNIT, bytes(UNIT))
    damaged = tree(store, ".")
    verified(store)
    assert tree(store, ".") == damaged != before
