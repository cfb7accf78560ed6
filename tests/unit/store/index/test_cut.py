"""The index after a crash of a store whose checkpoint can be trusted: cut there, not built again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.store.stores import TOPIC, open_small, read_all, send

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.store import MessageStore


def index_names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "index").iterdir())


def keyed(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        send(store, UNIQ_KEY=f"K{number}", TAGS="t")


def crashed_store(root: Path, after_sync: int) -> None:
    """A store with 30 messages that the checkpoint vouches for and some that it does not."""
    store = open_small(root, max_hash_slot_num=7, max_index_num=500)
    keyed(store, 0, 30)
    store.flush()
    store.sync_queues()
    keyed(store, 30, after_sync)
    assert store.index is not None
    store.index.flush_pending()
    store.flush()
    store.abandon()


@pytest.mark.parametrize("after_sync", [0, 1, 25])
def test_the_index_is_cut_at_the_checkpoint_and_continues_there(tmp_path: Path, after_sync: int) -> None:
    crashed_store(tmp_path, after_sync)
    names = index_names(tmp_path)
    store = open_small(tmp_path, max_hash_slot_num=7, max_index_num=500)
    assert store.recovery.removed_index_files == []
    assert store.recovery.records <= after_sync + 1
    for number in range(30 + after_sync):
        assert len(store.query(TOPIC, f"K{number}").records) == 1
    assert len(store.query(TOPIC, "t", 64, index_type="T").records) == 30 + after_sync
    assert len(read_all(store)) == 30 + after_sync
    keyed(store, 30 + after_sync, 5)
    store.close()
    assert index_names(tmp_path) == names


def test_a_cut_index_equals_one_that_never_saw_a_crash(tmp_path: Path) -> None:
    crashed_store(tmp_path / "crashed", 25)
    open_small(tmp_path / "crashed", max_hash_slot_num=7, max_index_num=500).close()
    whole = open_small(tmp_path / "whole", max_hash_slot_num=7, max_index_num=500)
    keyed(whole, 0, 55)
    whole.close()
    cut, never_cut = ((tmp_path / name / "index") for name in ("crashed", "whole"))
    assert [path.read_bytes() for path in cut.iterdir()] == [path.read_bytes() for path in never_cut.iterdir()]


def test_an_entry_damaged_before_the_checkpoint_makes_the_file_be_built_again(tmp_path: Path) -> None:
    crashed_store(tmp_path, 25)
    (file,) = (tmp_path / "index").iterdir()
    data = bytearray(file.read_bytes())
    data[40 + 7 * 4 + 20 * 10 + 16 : 40 + 7 * 4 + 20 * 10 + 20] = b"\0\0\1\0"  # the link of entry 10
    file.write_bytes(data)
    store = open_small(tmp_path, max_hash_slot_num=7, max_index_num=500)
    assert store.recovery.removed_index_files == [file.name]
    for number in range(55):
        assert len(store.query(TOPIC, f"K{number}").records) == 1
    store.close()
