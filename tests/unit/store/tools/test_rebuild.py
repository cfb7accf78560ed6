"""Queues and index built from the log alone are what the broker had written, and a cut leaves old or new ones."""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from orbitmq.store import ConfigError, LocalDisk, StoreError, StoreLockedError
from orbitmq.store.consumequeue.ext import is_ext_address
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.findings import Kind
from orbitmq.store.tools.rebuild import SCRATCH, Rebuilt, exclusive, rebuild
from orbitmq.store.tools.verify import verify
from orbitmq.testing import ManualClock, MemoryDisk, PowerCut
from support.store import golden
from support.store.stores import T0, TOPIC, edit_log, open_small, read_all, send, tree

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.platform.disk import Disk

CONF = {"maxHashSlotNum": "50", "maxIndexNum": "100", "mappedFileSizeConsumeQueue": "200"}
QUEUES = ("consumequeue", "batchconsumequeue")


def rebuilt(root: str | Path, conf: dict[str, str] | None = None, disk: Disk | None = None) -> Rebuilt:
    disk = disk or LocalDisk()
    with exclusive(disk, str(root)):
        return rebuild(disk, survey(disk, str(root), conf), clock=ManualClock(T0))


def is_sound(root: str | Path, conf: dict[str, str] | None = None, disk: Disk | None = None) -> bool:
    disk = disk or LocalDisk()
    return verify(disk, survey(disk, str(root), conf)).is_sound


# The bytes of Apache RocketMQ


@pytest.mark.parametrize("name", ["basic", "ipv6", "extra"])
def test_rebuilt_queues_are_byte_for_byte_those_of_the_broker(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    before, log = tree(root, *QUEUES), tree(root, "commitlog")
    for folder in QUEUES:
        shutil.rmtree(os.path.join(root, folder), ignore_errors=True)
    rebuilt(root, golden.config(name))
    after = tree(root, *QUEUES)
    assert after.keys() == before.keys()
    for path, contents in before.items():
        if is_ext_address(int.from_bytes(contents[12:20], "big", signed=True)):
            continue  # written without the extension, which readers take as well
        assert after[path] == contents, path
    assert tree(root, "commitlog") == log


@pytest.mark.parametrize("name", ["basic", "ipv6", "extra"])
def test_the_rebuilt_index_is_byte_for_byte_that_of_the_broker(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    before = [contents for _, contents in sorted(tree(root, "index").items())]
    rebuilt(root)
    assert [contents for _, contents in sorted(tree(root, "index").items())] == before


@pytest.mark.parametrize("name", ["killed", "torn", "extra"])
def test_rebuilt_queues_hold_the_units_that_recovery_makes(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    built = rebuilt(root)
    assert built.log_end == golden.expected_offsets(name)["maxPhyOffset"]
    units = tree(root, "consumequeue")
    for row in golden.expected_queue_units(name):
        if "batchNum" in row:
            continue
        base = row["queueOffset"] * 20 // 20000 * 20000
        data = units[f"consumequeue/{row['topic']}/{row['queueId']}/{base:020d}"]
        at = row["queueOffset"] * 20 - base
        expected = (row["physicalOffset"], row["size"], row["tagsCode"])
        found = (data[at : at + 8], data[at + 8 : at + 12], data[at + 12 : at + 20])
        assert tuple(int.from_bytes(part, "big", signed=True) for part in found) == expected
    assert is_sound(root)


def test_a_crashed_store_stays_to_be_recovered_by_its_broker(tmp_path: Path) -> None:
    root = golden.unpack("killed", tmp_path)
    rebuilt(root)
    assert os.path.exists(os.path.join(root, "abort"))
    report = verify(LocalDisk(), survey(LocalDisk(), root))
    assert (report.units_to_write, report.keys_to_write, report.units_to_drop) == (0, 0, 0)


# What the log decides


def test_damaged_queues_and_index_are_rebuilt(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for number in range(60):
            send(store, queue_id=number % 3, KEYS=f"key{number}", TAGS="tag")
    good = tree(tmp_path, "consumequeue")
    rng = random.Random(1)
    for folder in ("consumequeue", "index"):
        for path, contents in tree(tmp_path, folder).items():
            (tmp_path / path).write_bytes(rng.randbytes(len(contents)))
    assert not is_sound(tmp_path, CONF)
    rebuilt(tmp_path, CONF)
    assert is_sound(tmp_path)
    assert tree(tmp_path, "consumequeue") == good


def test_a_recreated_topic_has_only_its_new_messages(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 25)
        store.delete_topic(TOPIC)
        new = send(store, 12)
    rebuilt(tmp_path, CONF)
    assert is_sound(tmp_path)
    with open_small(tmp_path) as store:
        assert [record.physical_offset for record in read_all(store)] == new


def test_a_damaged_record_costs_only_itself(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 40, size=100)
    edit_log(tmp_path, offsets[7], b"\xff" * 8)
    edit_log(tmp_path, offsets[20] + 90, b"?")
    built = rebuilt(tmp_path, CONF)
    assert [damage.offset for damage in built.damages] == [offsets[7], offsets[20]]
    with open_small(tmp_path) as store:
        found = [record.physical_offset for record in read_all(store)]
    assert found == [offset for offset in offsets if offset not in {offsets[7], offsets[20]}]


def test_a_damaged_first_record_is_all_that_verifying_finds_afterwards(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 10)
    edit_log(tmp_path, 88, b"?")
    rebuilt(tmp_path, CONF)
    # The filler in its place names offset 0, where it lies, and is yet no unit of it.
    report = verify(LocalDisk(), survey(LocalDisk(), str(tmp_path), CONF))
    assert dict(report.findings.counts) == {Kind.BODY_CRC: 1}


def test_records_behind_zeros_are_retained(tmp_path: Path) -> None:
    with open_small(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        offsets = send(store, 40, size=100)
    edit_log(tmp_path, offsets[10], bytes(offsets[12] - offsets[10]), file_size=1 << 16)
    assert [damage.offset for damage in rebuilt(tmp_path, CONF).damages] == [offsets[10]]
    with open_small(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        found = [record.physical_offset for record in read_all(store)]
    assert found == offsets[:10] + offsets[12:]


def test_queue_offsets_go_on_where_the_oldest_record_is_no_more(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 60, size=200)
    os.remove(tmp_path / "commitlog" / f"{0:020d}")
    with open_small(tmp_path) as store:
        low, high = store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)
    rebuilt(tmp_path, CONF)
    with open_small(tmp_path) as store:
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (low, high)


# Refusals


def test_an_open_store_is_not_rebuilt(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store)
        with pytest.raises(StoreLockedError, match="stop that one"):
            rebuilt(tmp_path)


def test_a_store_without_a_log_is_left_alone(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 20)
    shutil.rmtree(tmp_path / "commitlog")
    before = tree(tmp_path, ".")
    with pytest.raises(StoreError, match="no log"):
        rebuilt(tmp_path)
    assert tree(tmp_path, ".") == before


def test_an_index_of_unknown_numbers_needs_the_conf(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 5)
    os.makedirs(tmp_path / "index")
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(40 + 4 * 51 + 20 * 100))
    with pytest.raises(ConfigError, match=r"broker\.conf"):
        rebuilt(tmp_path)


def test_a_full_disk_leaves_the_old_queues(tmp_path: Path) -> None:
    disk = MemoryDisk(1, clock=ManualClock(T0))
    with open_small("store", disk=disk) as store:
        for number in range(60):
            send(store, KEYS=f"key{number}")
    used = disk.space("store").used
    before = _contents(disk, "store/consumequeue")
    disk.capacity = used
    with pytest.raises(StoreError):
        rebuilt("store", CONF, disk)
    assert _contents(disk, "store/consumequeue") == before
    assert disk.stat(f"store/{SCRATCH}") is None
    assert is_sound("store", CONF, disk)


# Interruptions


def _files(disk: Disk, path: str) -> list[str]:
    stat = disk.stat(path)
    if stat is None:
        return []
    if not stat.is_dir:
        return [path]
    return [found for name in disk.list(path) for found in _files(disk, f"{path}/{name}")]


def _contents(disk: Disk, path: str) -> dict[str, bytes]:
    return {found: disk.read(found) for found in _files(disk, path)}


def filled_disk(seed: int) -> MemoryDisk:
    """A disk with a closed store on it, everything synced."""
    disk = MemoryDisk(seed, clock=ManualClock(T0))
    with open_small("store", disk=disk) as store:
        for number in range(60):
            send(store, queue_id=number % 2, KEYS=f"key{number}", TAGS="tag")
    return disk


def operations_of_a_rebuild() -> int:
    disk = filled_disk(0)
    before = disk.operations
    rebuilt("store", CONF, disk)
    return disk.operations - before


@pytest.mark.parametrize("power", [True, False], ids=["power cut", "kill"])
def test_an_interrupted_rebuild_leaves_a_store_that_opens_and_can_be_rebuilt(power: bool) -> None:
    total = operations_of_a_rebuild()
    for cut in range(total):
        disk = filled_disk(cut)
        queues = _contents(disk, "store/consumequeue")
        disk.crash_after(cut)
        with pytest.raises(PowerCut):
            rebuilt("store", CONF, disk)
        opened, left = (disk.power_cut(seed) if power else disk.kill() for seed in (cut, cut + 1))
        # A broker that starts now serves everything ...
        with open_small("store", disk=opened) as store:
            assert [len(read_all(store, queue_id=queue_id)) for queue_id in range(2)] == [30, 30]
        assert is_sound("store", CONF, opened)
        # ... and so does a rebuild that is begun again, also where the broker did not start in between.
        for disk in (opened, left):
            rebuilt("store", CONF, disk)
            assert _contents(disk, "store/consumequeue") == queues
            assert disk.stat(f"store/{SCRATCH}") is None
            assert is_sound("store", CONF, disk)


def test_sizes_are_still_known_after_a_cut_in_the_middle_of_the_swap() -> None:
    total = operations_of_a_rebuild()
    for cut in range(total - 60, total, 2):
        disk = filled_disk(cut)
        disk.crash_after(cut)
        with pytest.raises(PowerCut):
            rebuilt("store", CONF, disk)
        left = disk.kill()
        with exclusive(left, "store"):
            layout = survey(left, "store")
        assert layout.config.mapped_file_size_consume_queue == 200
        assert (layout.config.max_hash_slot_num, layout.config.max_index_num) == (50, 100)


def test_the_result_is_the_same_for_a_log_in_another_directory(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", store_path_commit_log=str(tmp_path / "log")) as store:
        send(store, 60, size=100)
    assert len(os.listdir(tmp_path / "log")) > 1
    good = tree(tmp_path / "store", "consumequeue")
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    rebuilt(tmp_path / "store", {**CONF, "storePathCommitLog": str(tmp_path / "log")})
    assert tree(tmp_path / "store", "consumequeue") == good
