"""Typed settings with RocketMQ's keys, and the properties files that they come from and go to."""

from __future__ import annotations

import contextlib
import dataclasses
import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.platform.properties_file import read_conf, replace_conf
from orbitmq.platform.settings import (
    ConfigError,
    Int64,
    as_properties,
    become,
    changed,
    from_settings,
    java_key,
    parse_conf,
    setting,
    settings_of,
    texts_of,
)
from orbitmq.store import DiskFaultError
from orbitmq.testing import MemoryDisk, PowerCut


class Colour(enum.Enum):
    """An enumeration with three members, of which one has another value than name."""

    RED = "RED"
    GREEN = "GREEN"
    BLUE = 3


@dataclasses.dataclass(slots=True, kw_only=True)
class Kept:
    """What another class of settings builds on."""

    thread_nums: int = 8


@dataclasses.dataclass(slots=True, kw_only=True)
class Config(Kept):
    """One setting of every kind."""

    broker_name: str = "a"
    listen_port: int = 10911
    file_size: Int64 = 1
    is_on: bool = False
    ratio: float = 0.8
    colour: Colour = Colour.RED
    broker_ip1: str = setting("127.0.0.1", key="brokerIP1")
    log_path: str = setting("", optional=True)

    def __post_init__(self) -> None:
        if self.listen_port == 13:
            raise ConfigError("listenPort=13: never")


def loaded(**texts: str) -> Config:
    return from_settings(Config, texts)[0]


# From text to values


def test_a_key_is_the_java_spelling_of_the_field() -> None:
    assert java_key("mapped_file_size_commit_log") == "mappedFileSizeCommitLog"
    assert java_key("max_resend_num2_blocked") == "maxResendNum2Blocked"
    assert list(settings_of(Config)) == sorted(settings_of(Config))
    assert settings_of(Config)["brokerIP1"].name == "broker_ip1"


def test_text_becomes_values_of_the_fields_types() -> None:
    config, unknown = from_settings(
        Config,
        {
            "brokerName": "b",
            "listenPort": "-7",
            "fileSize": "9223372036854775807",
            "isOn": "TRUE",
            "ratio": "2.5E1",
            "colour": "BLUE",
            "brokerIP1": "::1",
            "threadNums": "+4",
            "broker_name": "not a key",
            "other": "1",
        },
    )
    assert config == Config(
        broker_name="b",
        listen_port=-7,
        file_size=2**63 - 1,
        is_on=True,
        ratio=25.0,
        colour=Colour.BLUE,
        broker_ip1="::1",
        thread_nums=4,
    )
    assert unknown == ["broker_name", "other"]


def test_overrides_win_and_are_values() -> None:
    config, _ = from_settings(Config, {"listenPort": "1", "brokerName": "b"}, listen_port=2)
    assert (config.listen_port, config.broker_name) == (2, "b")


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("listenPort", "many", "listenPort=many: a whole number is expected, of 32 bits"),
        ("listenPort", "", "a whole number"),
        ("listenPort", "1_000", "a whole number"),
        ("listenPort", "1.0", "a whole number"),
        ("listenPort", "²", "a whole number"),
        ("listenPort", "٣", "a whole number"),
        ("listenPort", "2147483648", "of 32 bits"),
        ("listenPort", "-2147483649", "of 32 bits"),
        ("listenPort", "9" * 5000, "of 32 bits"),
        ("fileSize", "9223372036854775808", "of 64 bits"),
        ("isOn", "yes", "isOn=yes: true or false is expected"),
        ("isOn", "", "true or false"),
        ("ratio", "half", "ratio=half: a number is expected"),
        ("ratio", "nan", "a number"),
        ("ratio", "1e999", "a number"),
        ("colour", "3", "colour=3: RED, GREEN or BLUE is expected"),
        ("colour", "red", "RED, GREEN or BLUE"),
        ("listenPort", "13", "listenPort=13: never"),
    ],
)
def test_a_value_that_cannot_be_is_named(key: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        from_settings(Config, {key: text})
    config = Config()
    with pytest.raises(ConfigError, match=reason):
        changed(config, {"brokerName": "b", key: text})
    assert config == Config()


def test_a_change_makes_a_copy_that_all_holders_adopt_at_once() -> None:
    config = loaded(brokerName="b")
    wanted = changed(config, {"isOn": "true", "other": "1"})
    assert (wanted.is_on, wanted.broker_name, config.is_on) == (True, "b", False)
    become(config, wanted)
    assert config == wanted


# From values to text


def test_values_become_the_text_that_they_come_from() -> None:
    texts = {
        "brokerIP1": "::1",
        "brokerName": "b",
        "colour": "BLUE",
        "fileSize": "5",
        "isOn": "true",
        "listenPort": "1",
        "logPath": "/log",
        "ratio": "8000.0",
        "threadNums": "2",
    }
    assert texts_of(loaded(**texts)) == texts
    assert as_properties(texts).splitlines() == [f"{key}={text}" for key, text in texts.items()]


def test_what_may_be_not_set_is_shown_only_if_it_is() -> None:
    assert "logPath" not in texts_of(Config())
    assert texts_of(Config(broker_name=""))["brokerName"] == ""


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))))
def test_any_text_is_read_back_as_it_was_written(texts: dict[str, str]) -> None:
    assert parse_conf(as_properties(texts)) == texts


# Java properties files


def test_a_broker_conf_is_a_java_properties_file() -> None:
    text = """
# a comment
! another
brokerName = broker-a
   listenPort: 10911
brokerIP1=fe80::1
storePathCommitLog=/a,\\
    /b
messageDelayLevel=1s 5s
namesrvAddr=one:9876;two:9876
emptyValue=
key\tvalue
# the last one wins
listenPort=20911
"""
    assert parse_conf(text) == {
        "brokerName": "broker-a",
        "listenPort": "20911",
        "brokerIP1": "fe80::1",
        "storePathCommitLog": "/a,/b",
        "messageDelayLevel": "1s 5s",
        "namesrvAddr": "one:9876;two:9876",
        "emptyValue": "",
        "key": "value",
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a=b\\", {"a": "b"}),
        ("a=C:\\\\data", {"a": "C:\\data"}),
        ("a\\:b=c", {"a:b": "c"}),
        ("a=x\\ty", {"a": "x\ty"}),
        ("a=\\u00e4", {"a": "ä"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a b=c", {"a": "b=c"}),
        ("=b", {"": "b"}),
        ("a", {"a": ""}),
        ("a=1\r\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n#2", {"a": "1#2"}),
        ("a=1  ", {"a": "1"}),
        ("", {}),
    ],
)
def test_separators_and_escapes_are_javas(line: str, expected: dict[str, str]) -> None:
    assert parse_conf(line) == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a=\\u12", "four hexadecimal digits"),
        ("a=\\uwxyz", "four hexadecimal digits"),
        ("a=\\ud83d", "is not text"),
        ("\\ude00=a", "is not text"),
    ],
)
def test_an_escape_that_is_no_character_is_named(line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_conf(line)


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_makes_the_reader_raise_anything_but_its_own_error(text: str) -> None:
    try:
        settings = parse_conf(text)
    except ConfigError:
        return
    assert parse_conf(as_properties(settings)) == settings


# On a disk


def test_a_file_is_read_with_a_byte_order_mark_and_comments_in_any_encoding() -> None:
    disk = MemoryDisk()
    disk.write("/broker.conf", b"\xef\xbb\xbfa=\xc3\xa4\n" + "# 中文\n".encode("gbk") + b"b=1\n")
    assert read_conf(disk, "/broker.conf") == {"a": "ä", "b": "1"}


@pytest.mark.parametrize("data", [b"a=\xe4\n", b"\xff\xfe=1\n", bytes(range(256))])
def test_a_value_that_is_not_utf_8_is_named_with_its_file(data: bytes) -> None:
    disk = MemoryDisk()
    disk.write("/broker.conf", data)
    with pytest.raises(ConfigError, match=r"/broker\.conf: "):
        read_conf(disk, "/broker.conf")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DiskFaultError, match=r"cannot read /none\.conf"):
        read_conf(MemoryDisk(), "/none.conf")


def test_a_replaced_file_is_whole_after_a_power_cut_at_any_moment() -> None:
    for steps in range(8):
        disk = MemoryDisk(seed=steps)
        disk.write("/etc/broker.conf", b"a=1\n")
        disk.sync("/etc/broker.conf")
        disk.sync_dir("/etc")
        disk.crash_after(steps)
        with contextlib.suppress(PowerCut):
            replace_conf(disk, "/etc/broker.conf", "a=2\n")
        for seed in range(20):
            assert disk.power_cut(seed).read("/etc/broker.conf") in {b"a=1\n", b"a=2\n"}


def test_a_replaced_file_lasts_and_leaves_what_it_was() -> None:
    disk = MemoryDisk()
    for number in (1, 2, 3):
        replace_conf(disk, "/etc/broker.conf", f"a={number}\n")
    after = disk.power_cut()
    assert after.read("/etc/broker.conf") == b"a=3\n"
    assert after.read("/etc/broker.conf.bak") == b"a=2\n"


def test_a_file_that_cannot_be_written_is_named() -> None:
    disk = MemoryDisk()
    disk.fail("write")
    with pytest.raises(DiskFaultError, match=r"cannot write /etc/broker\.conf"):
        replace_conf(disk, "/etc/broker.conf", "a=1\n")
