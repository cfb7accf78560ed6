"""The sizes of a store are read off its files, and a conf that contradicts them is refused."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from orbitmq.store import ConfigError, LocalDisk, from_settings
from orbitmq.store.tools.detect_layout import NotAStoreError, detect, survey
from support.store import golden
from support.store.stores import open_small, send

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
)


@pytest.mark.parametrize("name", golden.SETS)
def test_sizes_are_found_without_a_conf(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    written, _ = from_settings(golden.config(name), store_path_root_dir=root)
    found = detect(LocalDisk(), root)
    for size in SIZES:
        assert getattr(found, size) == getattr(written, size), size
    assert found.enable_lmq is written.enable_lmq
    assert found.enable_multi_dispatch is written.enable_multi_dispatch


def test_sizes_of_batch_queues_and_extensions_are_found(tmp_path: Path) -> None:
    layout = survey(LocalDisk(), golden.unpack("extra", tmp_path))
    assert layout.config.mapper_file_size_batch_consume_queue == 460
    assert layout.config.mapped_file_size_consume_queue_ext == 4096
    assert layout.batch_topics == {"TopicBcq"}
    assert layout.assumed == []


def test_a_batch_topic_is_known_from_the_table_of_topics(tmp_path: Path) -> None:
    root = golden.unpack("extra", tmp_path)
    shutil.rmtree(os.path.join(root, "batchconsumequeue"))
    assert survey(LocalDisk(), root).batch_topics == {"TopicBcq"}


@pytest.mark.parametrize(("slots", "entries"), [(50, 100), (7, 33), (1, 2), (1000, 30), (501, 2003)])
def test_slots_and_entries_are_deduced_from_what_an_index_holds(slots: int, entries: int, tmp_path: Path) -> None:
    with open_small(tmp_path, max_hash_slot_num=slots, max_index_num=entries) as store:
        for number in range(40):
            send(store, KEYS=f"key{number} other{number}", TAGS="a")
    layout = survey(LocalDisk(), str(tmp_path))
    assert layout.index_is_known
    assert (layout.config.max_hash_slot_num, layout.config.max_index_num) == (slots, entries)


def test_an_index_without_entries_does_not_tell_its_numbers(tmp_path: Path) -> None:
    with open_small(tmp_path, max_hash_slot_num=51) as store:
        send(store)
    os.makedirs(tmp_path / "index")
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(40 + 4 * 51 + 20 * 100))
    layout = survey(LocalDisk(), str(tmp_path))
    assert not layout.index_is_known
    given = {"maxHashSlotNum": "51", "maxIndexNum": "100"}
    assert survey(LocalDisk(), str(tmp_path), given).index_is_known


def test_one_of_the_index_settings_gives_the_other(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    assert detect(LocalDisk(), root, {"maxHashSlotNum": "500"}).max_index_num == 2000
    assert detect(LocalDisk(), root, {"maxIndexNum": "2000"}).max_hash_slot_num == 500


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"mappedFileSizeCommitLog": "1073741824"}, "mappedFileSizeCommitLog"),
        ({"mappedFileSizeConsumeQueue": "6000000"}, "mappedFileSizeConsumeQueue"),
        ({"maxHashSlotNum": "5000000", "maxIndexNum": "20000000"}, "maxIndexNum"),
        # The same length made of other numbers.
        ({"maxHashSlotNum": "600", "maxIndexNum": "1980"}, "maxHashSlotNum=500"),
        ({"maxHashSlotNum": "501"}, "maxHashSlotNum"),
    ],
)
def test_a_conf_that_contradicts_the_files_is_refused(settings: dict[str, str], named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=named):
        detect(LocalDisk(), golden.unpack("basic", tmp_path), settings)


def test_what_no_file_tells_is_named_as_assumed(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    shutil.rmtree(os.path.join(root, "consumequeue"))
    assert "mappedFileSizeConsumeQueue=6000000" in survey(LocalDisk(), root).assumed
    given = survey(LocalDisk(), root, {"mappedFileSizeConsumeQueue": "20000"})
    assert given.config.mapped_file_size_consume_queue == 20000
    assert not any(text.startswith("mappedFileSizeConsumeQueue=") for text in given.assumed)


def test_a_log_file_cut_short_does_not_change_the_size_of_the_others(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    os.truncate(os.path.join(root, "commitlog", f"{0:020d}"), 1000)
    assert detect(LocalDisk(), root).mapped_file_size_commit_log == 262144


def test_the_root_given_wins_over_the_one_in_the_conf(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    conf = {"storePathRootDir": "/data/store", "storePathCommitLog": "/data/store/commitlog"}
    config = detect(LocalDisk(), root, conf)
    assert config.store_path_root_dir == root
    assert config.commit_log_dirs == (os.path.join(root, "commitlog"),)


def test_a_log_in_another_directory_is_found(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    elsewhere = tmp_path / "log"
    os.rename(os.path.join(root, "commitlog"), elsewhere)
    config = detect(LocalDisk(), root, {"storePathCommitLog": str(elsewhere)})
    assert config.commit_log_dirs == (str(elsewhere),)
    assert config.mapped_file_size_commit_log == 262144


def test_what_is_no_store_is_refused_with_a_hint(tmp_path: Path) -> None:
    root = golden.unpack("ipv6", tmp_path)
    with pytest.raises(NotAStoreError, match="there is no directory"):
        detect(LocalDisk(), str(tmp_path / "nothing"))
    with pytest.raises(NotAStoreError, match=f"did you mean {root}"):
        detect(LocalDisk(), str(tmp_path))
    with pytest.raises(NotAStoreError, match="the directory above"):
        detect(LocalDisk(), os.path.join(root, "commitlog"))
    with pytest.raises(NotAStoreError, match="is a file"):
        detect(LocalDisk(), os.path.join(root, "checkpoint"))
