"""The store's settings: RocketMQ's names, its defaults, and which values make sense."""

from __future__ import annotations

import pytest

from orbitmq.platform.settings import ConfigError, Int64, java_key, settings_of
from orbitmq.store import BrokerRole, FlushDiskType, StoreConfig, from_settings
from orbitmq.store.config import delay_levels
from orbitmq.store.ignored_settings import IgnoredStoreSettings
from orbitmq.store.setting_ranges import STORE_RANGES
from support.store import golden


def test_defaults_are_those_of_rocketmq() -> None:
    config = StoreConfig()
    expected = {
        "mapped_file_size_commit_log": 1073741824,
        "mapped_file_size_consume_queue": 6000000,
        "mapper_file_size_batch_consume_queue": 13800000,
        "mapped_file_size_consume_queue_ext": 50331648,
        "max_hash_slot_num": 5000000,
        "max_index_num": 20000000,
        "message_index_enable": True,
        "flush_disk_type": FlushDiskType.ASYNC_FLUSH,
        "flush_interval_commit_log": 500,
        "flush_commit_log_least_pages": 4,
        "flush_commit_log_thorough_interval": 10000,
        "flush_interval_consume_queue": 1000,
        "flush_consume_queue_least_pages": 2,
        "flush_consume_queue_thorough_interval": 60000,
        "sync_flush_timeout": 5000,
        "transient_store_pool_enable": False,
        "transient_store_pool_size": 5,
        "commit_interval_commit_log": 200,
        "max_message_size": 4194304,
        "auto_message_version_on_topic_len": True,
        "enabled_append_prop_crc": False,
        "force_verify_prop_crc": False,
        "enable_lmq": False,
        "enable_multi_dispatch": False,
        "max_lmq_consume_queue_num": 20000,
        "message_delay_level": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "max_transfer_bytes_on_message_in_memory": 262144,
        "max_transfer_count_on_message_in_memory": 32,
        "max_transfer_bytes_on_message_in_disk": 65536,
        "max_transfer_count_on_message_in_disk": 8,
        "access_message_in_memory_max_ratio": 40,
        "max_filter_message_size": 16000,
        "max_msgs_num_batch": 64,
        "default_query_max_num": 32,
        "file_reserved_time": 72,
        "delete_when": "04",
        "delete_file_batch_max": 10,
        "disk_max_used_space_ratio": 75,
        "disk_space_clean_forcibly_ratio": 85,
        "disk_space_warning_level_ratio": 90,
        "clean_file_forcibly_enable": True,
        "clean_resource_interval": 10000,
        "listen_port": 10911,
        "broker_role": BrokerRole.ASYNC_MASTER,
        "ha_listen_port": 10912,
        "enable_consume_queue_ext": False,
        "flush_delay_offset_interval": 10000,
        "pull_batch_max_message_count": 160,
    }
    assert {name: getattr(config, name) for name in expected} == expected


def test_every_setting_has_the_java_spelling_of_its_name() -> None:
    settings = {
        "mapperFileSizeBatchConsumeQueue": "460",
        "enabledAppendPropCRC": "true",
        "forceVerifyPropCRC": "TRUE",
        "brokerIP1": "10.0.0.1",
        "flushDiskType": "SYNC_FLUSH",
        "deleteWhen": "03;15",
        "storePathRootDir": "/data/store",
    }
    config, unknown = from_settings(settings)
    assert list(unknown) == []
    assert config.mapper_file_size_batch_consume_queue == 460
    assert config.enabled_append_prop_crc
    assert config.force_verify_prop_crc
    assert config.broker_ip1 == "10.0.0.1"
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.delete_hours == {3, 15}
    assert config.path("config", "topics.json") == "/data/store/config/topics.json"


def test_keys_of_others_are_handed_back_and_overrides_win() -> None:
    config, unknown = from_settings({"brokerName": "a", "listenPort": "1", "fileReservedTime": "48"}, listen_port=2)
    assert list(unknown) == ["brokerName"]
    assert (config.listen_port, config.file_reserved_time) == (2, 48)


@pytest.mark.parametrize("name", golden.SETS)
def test_the_settings_of_a_real_broker_load(name: str) -> None:
    config, unknown = from_settings(golden.config(name))
    assert config.mapped_file_size_commit_log == 262144
    assert not settings_of(StoreConfig).keys() & set(unknown)


def test_queue_files_hold_whole_units() -> None:
    config = StoreConfig(mapped_file_size_consume_queue=1001, mapper_file_size_batch_consume_queue=47)
    assert config.mapped_file_size_consume_queue == 1020
    assert config.mapper_file_size_batch_consume_queue == 92


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("mappedFileSizeCommitLog", "0", "mappedFileSizeCommitLog=0: a number from 256 to 2147483647 is expected"),
        ("mappedFileSizeCommitLog", "-1", "a number from [0-9]+ to [0-9]+ is expected"),
        ("mappedFileSizeConsumeQueue", "0", "a number from [0-9]+ to [0-9]+ is expected"),
        ("maxHashSlotNum", "0", "a number from [0-9]+ to [0-9]+ is expected"),
        ("maxMessageSize", "0", "a number from [0-9]+ to [0-9]+ is expected"),
        ("listenPort", "many", "listenPort=many: a whole number is expected"),
        ("listenPort", "", "a whole number is expected"),
        ("flushDiskType", "sometimes", "ASYNC_FLUSH or SYNC_FLUSH is expected"),
        ("listenPort", "65536", "a number from -?[0-9]+ to 65535 is expected"),
        ("haListenPort", "65536", "a number from -?[0-9]+ to 65535 is expected"),
        ("mappedFileSizeCommitLog", "2147483648", "a whole number is expected, of 32 bits"),
        ("cleanResourceInterval", "0", "a number from [0-9]+ to [0-9]+ is expected"),
        ("enableLmq", "perhaps", "true or false is expected"),
        ("brokerRole", "BOSS", "ASYNC_MASTER, SYNC_MASTER or SLAVE is expected"),
        ("messageDelayLevel", "1s 5x", "messageDelayLevel has '5x'"),
        (
            "messageDelayLevel",
            "9999999999999d",
            "messageDelayLevel has '9999999999999d'; a level has at most 3660d",
        ),
        ("messageDelayLevel", "9" * 5000 + "s", "a level has at most 3660d"),
        ("messageDelayLevel", "²s", "messageDelayLevel has '²s'"),
        ("messageDelayLevel", "1s " * 65, "messageDelayLevel has 65 levels; at most 64 are allowed"),
        ("maxIndexNum", "1", "maxIndexNum=1: a number from 2"),
        ("maxIndexNum", "2147483647", "make index files of 42969672980 bytes; at most 2147483647 are allowed"),
        ("mappedFileSizeConsumeQueue", "2147483647", "a number from 1 to 2147483640 is expected"),
        ("deleteWhen", "²", "give hours 00 to 23"),
        ("archiveGroup", "a" * 8193, "archiveGroup has 8193 characters; at most 8192 are allowed"),
        ("deleteWhen", "24", "give hours 00 to 23"),
        ("deleteWhen", "04;four", "deleteWhen has 'four'"),
    ],
)
def test_a_value_that_cannot_be_is_named(key: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        from_settings({key: text})


def test_every_number_that_is_used_has_a_range() -> None:
    kept = settings_of(IgnoredStoreSettings)
    used = {
        one.name for key, one in settings_of(StoreConfig).items() if one.kind in (int, Int64) and key not in kept
    }
    assert used == STORE_RANGES.keys()


@pytest.mark.parametrize("field", ["mapped_file_size_commit_log", "max_index_num", "max_message_size"])
def test_a_value_given_in_python_is_checked_too(field: str) -> None:
    with pytest.raises(ConfigError, match=java_key(field)):
        StoreConfig(**{field: 0})  # type: ignore[arg-type]


def test_the_log_lies_in_the_root_or_in_the_directories_given() -> None:
    assert StoreConfig(store_path_root_dir="/s").commit_log_dirs == ("/s/commitlog",)
    several = StoreConfig(
        store_path_root_dir="/s", store_path_commit_log="/b, /a,", read_only_commit_log_store_paths="/a"
    )
    assert several.commit_log_dirs == ("/a", "/b")
    assert several.read_only_dirs == {"/a"}


def test_delay_levels_count_from_one() -> None:
    assert delay_levels("1s 5m 2h 3d") == {1: 1000, 2: 300_000, 3: 7_200_000, 4: 259_200_000}
    assert delay_levels("") == {}
    with pytest.raises(ConfigError, match="messageDelayLevel has '5x'"):
        delay_levels("1s 5x")
