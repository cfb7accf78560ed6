"""The tables under ``config/``: Apache's files read and written back, and the fallback to ``.bak``."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.protocol.bodies import (
    DataVersion,
    MessageRequestMode,
    Metric,
    TimerMetricsSerializeWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
)
from orbitmq.store import config_tables as config_json
from orbitmq.store.config_tables import ALL, TOPICS
from orbitmq.store.errors import DiskFaultError, StoreDamagedError
from support.paths import DATA

if TYPE_CHECKING:
    from orbitmq.platform.json_files import ConfigFile

CONFIG = str(DATA / "config")
BY_NAME = {file.name: file for file in ALL}
APACHE = sorted(
    os.path.join(folder, name) for folder in os.listdir(CONFIG) for name in os.listdir(os.path.join(CONFIG, folder))
)


def table(*topics: str) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper({name: TopicConfig(name) for name in topics}, DataVersion(len(topics), 0, 7))


def put(directory: os.PathLike[str], name: str, data: bytes) -> None:
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)


def names(directory: os.PathLike[str]) -> list[str]:
    return sorted(os.listdir(directory))


# Apache's files


@pytest.mark.parametrize("path", APACHE)
def test_apaches_file_is_written_back_byte_for_byte(path: str, tmp_path: os.PathLike[str]) -> None:
    name = os.path.basename(path).removesuffix(".bak")
    file = BY_NAME[name]
    shutil.copy(os.path.join(CONFIG, path), os.path.join(tmp_path, name))
    with open(os.path.join(CONFIG, path), "rb") as original:
        expected = original.read()

    disk = LocalDisk()
    directory = os.fspath(tmp_path)
    loaded = file.load(disk, directory)
    assert file.encode(loaded) == expected
    file.persist(disk, directory, loaded)
    assert disk.read(os.path.join(directory, name)) == expected
    assert disk.read(os.path.join(directory, name + ".bak")) == expected
    assert names(tmp_path) == [name, name + ".bak"]


def test_every_kind_of_file_that_apache_left_is_covered() -> None:
    left = {os.path.basename(path).removesuffix(".bak") for path in APACHE}
    # No golden broker had a static topic.
    assert left | {config_json.TOPIC_QUEUE_MAPPINGS.name} == set(BY_NAME)


def test_apaches_tables_say_what_they_should() -> None:
    disk = LocalDisk()
    basic, extra = os.path.join(CONFIG, "basic"), os.path.join(CONFIG, "extra")

    topics = TOPICS.load(disk, basic, read_only=True)
    assert topics.data_version == DataVersion(20, 0, 1794773542326)
    assert topics.topic_config_table["SCHEDULE_TOPIC_XXXX"] == TopicConfig("SCHEDULE_TOPIC_XXXX", 18, 18, 6)
    assert topics.topic_config_table["TopicTx"].topic_filter_type is TopicFilterType.SINGLE_TAG
    batch = TOPICS.load(disk, extra, read_only=True).topic_config_table["TopicBcq"]
    assert batch.attributes == {"queue.type": "BatchCQ"}

    offsets = config_json.CONSUMER_OFFSETS.load(disk, basic, read_only=True)
    assert offsets.offset_table["TopicTags@g_tags"] == {0: 10, 1: 11}
    lmq = config_json.LMQ_CONSUMER_OFFSETS.load(disk, extra, read_only=True)
    assert lmq.offset_table == {"TopicSql@g_sql2": {0: 410, 1: 10}} == lmq.pull_offset_table
    assert config_json.DELAY_OFFSETS.load(disk, basic, read_only=True).offset_table == {1: 5, 2: 2, 3: 2, 18: 0}

    group = config_json.SUBSCRIPTION_GROUPS.load(disk, basic, read_only=True).subscription_group_table["g_retry"]
    assert (group.retry_max_times, group.subscription_data_set) == (16, None)
    (modes,) = config_json.MESSAGE_REQUEST_MODES.load(disk, basic, read_only=True).message_request_mode_map.values()
    assert [setting.mode for setting in modes.values()] == [MessageRequestMode.POP]

    filters = config_json.CONSUMER_FILTERS.load(disk, extra, read_only=True).filter_data_by_topic["TopicSql"]
    wanted = filters.group_filter_data["g_sql"]
    assert wanted.expression == "a > 5 AND b = 'x'"
    assert wanted.dead
    assert wanted.bloom_filter_data is not None
    assert wanted.bloom_filter_data.bit_pos == (55, 110, 53)

    assert config_json.TIMER_METRICS.load(disk, basic, read_only=True).timing_count["TopicTimer"].count == 2
    assert config_json.TRANSACTION_METRICS.load(disk, basic, read_only=True).transaction_count["TopicTx"].count == 1


@pytest.mark.parametrize("file", ALL, ids=lambda file: file.name)
def test_a_table_that_was_never_written_is_empty(file: ConfigFile[Any], tmp_path: os.PathLike[str]) -> None:
    disk = LocalDisk()
    empty = file.load(disk, os.path.join(tmp_path, "config"))
    assert empty == file.shape()
    file.persist(disk, os.path.join(tmp_path, "config"), empty)
    assert file.load(disk, os.path.join(tmp_path, "config")) == empty


def test_metrics_files_hold_compact_json(tmp_path: os.PathLike[str]) -> None:
    metrics = TimerMetricsSerializeWrapper({"主题": Metric(2**60, 1)}, DataVersion(1, 2, 3))
    assert config_json.TIMER_METRICS.encode(metrics).decode() == (
        '{"dataVersion":{"counter":1,"stateVersion":2,"timestamp":3},'
        '"timingCount":{"主题":{"count":"1152921504606846976","timeStamp":1}}}'
    )
    disk = LocalDisk()
    config_json.TIMER_METRICS.persist(disk, os.fspath(tmp_path), metrics)
    assert config_json.TIMER_METRICS.load(disk, os.fspath(tmp_path)) == metrics


# The fallback


@pytest.mark.parametrize(
    "contents", [None, b"", b"{", b'{"topicConfigTable":[]}', b"\x00" * 512, b'{"dataVersion":1}']
)
def test_the_backup_is_read_when_the_file_is_of_no_use(contents: bytes | None, tmp_path: os.PathLike[str]) -> None:
    good = TOPICS.encode(table("kept"))
    put(tmp_path, "topics.json.bak", good)
    if contents is not None:
        put(tmp_path, "topics.json", contents)
    disk = LocalDisk()
    before = names(tmp_path)
    assert TOPICS.load(disk, os.fspath(tmp_path), read_only=True) == table("kept")
    assert names(tmp_path) == before

    assert TOPICS.load(disk, os.fspath(tmp_path)) == table("kept")
    assert names(tmp_path) == ["topics.json.bak"]

    TOPICS.persist(disk, os.fspath(tmp_path), table("new"))
    assert disk.read(os.path.join(tmp_path, "topics.json.bak")) == good
    assert TOPICS.load(disk, os.fspath(tmp_path)) == table("new")


@pytest.mark.parametrize("contents", [None, b"", b"torn {"])
def test_a_file_that_cannot_be_read_is_not_touched_when_its_backup_cannot_be_read_either(
    contents: bytes | None, tmp_path: os.PathLike[str]
) -> None:
    put(tmp_path, "topics.json.bak", b"{torn")
    if contents is not None:
        put(tmp_path, "topics.json", contents)
    before = names(tmp_path)
    with pytest.raises(StoreDamagedError, match=r"topics\.json.*restore"):
        TOPICS.load(LocalDisk(), os.fspath(tmp_path))
    assert names(tmp_path) == before


@pytest.mark.parametrize("backup", [None, b""])
def test_an_unreadable_file_without_a_backup_is_not_an_empty_table(
    backup: bytes | None, tmp_path: os.PathLike[str]
) -> None:
    put(tmp_path, "topics.json", b"{torn")
    if backup is not None:
        put(tmp_path, "topics.json.bak", backup)
    with pytest.raises(StoreDamagedError):
        TOPICS.load(LocalDisk(), os.fspath(tmp_path))
    assert "topics.json" in names(tmp_path)


def test_empty_files_are_none(tmp_path: os.PathLike[str]) -> None:
    put(tmp_path, "topics.json", b"")
    put(tmp_path, "topics.json.bak", b"")
    assert TOPICS.load(LocalDisk(), os.fspath(tmp_path)) == TopicConfigSerializeWrapper()


def test_an_empty_file_does_not_push_out_the_backup(tmp_path: os.PathLike[str]) -> None:
    good = TOPICS.encode(table("kept"))
    put(tmp_path, "topics.json", b"")
    put(tmp_path, "topics.json.bak", good)
    TOPICS.persist(LocalDisk(), os.fspath(tmp_path), table("new"))
    assert LocalDisk().read(os.path.join(tmp_path, "topics.json.bak")) == good


def test_a_disk_that_refuses_is_a_disk_fault(tmp_path: os.PathLike[str]) -> None:
    put(tmp_path, "occupied", b"")
    with pytest.raises(DiskFaultError, match=r"topics\.json"):
        TOPICS.persist(LocalDisk(), os.path.join(tmp_path, "occupied"), table("new"))
    os.mkdir(os.path.join(tmp_path, "topics.json"))
    put(tmp_path, "topics.json/entry", b"")
    with pytest.raises(DiskFaultError):
        TOPICS.load(LocalDisk(), os.fspath(tmp_path))
