"""All settings of a broker: what a real one shows, what a broker.conf may say, and what the machine is asked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.kept_settings import PROCESSORS
from orbitmq.broker.machine import Machine, own_address, resolve
from orbitmq.broker.settings import IMPORTANT, NEEDS_RESTART, BrokerSettings, load_settings
from orbitmq.protocol.codes import RequestCode
from orbitmq.settings import ConfigError, parse_conf, settings_of
from orbitmq.store import DiskFaultError, FlushDiskType, StoreConfig
from orbitmq.testing import MemoryDisk
from wire_captures import all_captured

if TYPE_CHECKING:
    from collections.abc import Mapping

CONF = "/etc/broker.conf"


def unknown_host(name: str) -> str:
    raise OSError(-2, "Name or service not known", name)


def machine(environment: Mapping[str, str] | None = None) -> Machine:
    """A machine with one address, that knows one other host."""

    def resolved(name: str) -> str:
        return "10.0.0.9" if name == "broker.example" else unknown_host(name)

    return Machine(lambda: "host-a", lambda: "10.0.0.5", resolved, environment or {}, "/home/me")


def load(text: str = "", **overrides: str) -> BrokerSettings:
    disk = MemoryDisk()
    disk.write(CONF, text.encode())
    return load_settings(disk, CONF, overrides, machine=machine())[0]


def shown_by_apache() -> list[str]:
    """All settings as RocketMQ 5.5.0 brokers answered them."""
    bodies = [one.frame[2].decode() for one in all_captured() if one.request_code == RequestCode.GET_BROKER_CONFIG]
    assert bodies
    return bodies


# What a real broker shows


def test_what_a_real_broker_shows_is_known_and_shown_as_it_was() -> None:
    for body in shown_by_apache():
        disk = MemoryDisk()
        disk.write(CONF, body.encode())
        settings, unknown = load_settings(disk, CONF, machine=machine())
        assert unknown == []
        assert settings.as_properties() == body


def test_defaults_are_those_of_rocketmq() -> None:
    # What the captured broker was told, and what it took from its machine.
    told = {
        "bitMapLengthConsumeQueueExt",
        "brokerIP1",
        "brokerIP2",
        "brokerName",
        "clientCallbackExecutorThreads",
        "enablePropertyFilter",
        "endTransactionThreadPoolNums",
        "haListenPort",
        "heartbeatThreadPoolNums",
        "listenPort",
        "litePullMessageThreadPoolNums",
        "mappedFileSizeCommitLog",
        "maxMessageSize",
        "namesrvAddr",
        "processReplyMessageThreadPoolNums",
        "pullMessageThreadPoolNums",
        "putMessageFutureThreadPoolNums",
        "queryMessageThreadPoolNums",
        "recallMessageEnable",
        "rocketmqHome",
        "sendMessageThreadPoolNums",
        "storePathCommitLog",
        "storePathRootDir",
        "traceTopicEnable",
        "transactionCheckInterval",
        "transactionTimeOut",
        "waitTimeMillsInSendQueue",
    }
    theirs = parse_conf(shown_by_apache()[0])
    ours = load().texts()
    assert {key: ours[key] for key in theirs.keys() - told} == {key: theirs[key] for key in theirs.keys() - told}
    assert theirs.keys() - ours.keys() == {"namesrvAddr", "rocketmqHome", "storePathCommitLog"}
    assert ours.keys() <= theirs.keys()
    assert load().broker.pull_message_thread_pool_nums == 16 + 2 * PROCESSORS
    assert load().broker.transaction_time_out == 6000
    assert load().broker.wait_time_mills_in_send_queue == 200


def test_lists_of_keys_name_settings_that_there_are() -> None:
    known = settings_of(BrokerConfig).keys() | settings_of(StoreConfig).keys()
    assert known >= IMPORTANT
    assert known >= NEEDS_RESTART


# A broker.conf


def test_the_file_of_a_running_cluster_loads_as_it_is() -> None:
    disk = MemoryDisk()
    disk.write(
        CONF,
        b"# ours\nbrokerClusterName = east\nbrokerName=broker-a\nbrokerId=3\nnamesrvAddr=one:9876;two:9876\n"
        b"brokerIP1=10.1.1.1\nlistenPort=20911\nstorePathRootDir=/data\nflushDiskType=SYNC_FLUSH\n"
        b"brokerRole=SYNC_MASTER\ndeleteWhen=04\nfileReservedTime=48\ntieredStoreFilePath=/tiered\n",
    )
    settings, unknown = load_settings(disk, CONF, machine=machine())
    broker, store = settings.broker, settings.store
    assert (broker.broker_cluster_name, broker.broker_name, broker.broker_id) == ("east", "broker-a", 0)
    assert broker.name_servers == ("one:9876", "two:9876")
    assert broker.broker_address == "10.1.1.1:20911"
    assert settings.ha_address == "10.0.0.5:20912"
    assert (store.store_path_root_dir, store.file_reserved_time) == ("/data", 48)
    assert store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert settings.file == CONF
    assert unknown == ["tieredStoreFilePath"]


def test_what_is_not_known_is_kept_for_the_file() -> None:
    settings = load("tieredStoreFilePath=/tiered\n")
    assert "tieredStoreFilePath=/tiered\n" in settings.as_properties()
    assert "tieredStoreFilePath=/other\n" in settings.changed({"tieredStoreFilePath": "/other"}).as_properties()
    assert "neverHeardOf" not in settings.changed({"neverHeardOf": "1"}).as_properties()


def test_what_the_command_line_says_comes_before_the_file() -> None:
    settings = load("brokerName=a\nlistenPort=1\n", brokerName="b", bindAddress="127.0.0.1")
    assert (settings.broker.broker_name, settings.broker.listen_port) == ("b", 1)
    assert settings.broker.broker_address == "127.0.0.1:1"


def test_without_a_file_changes_go_to_the_store() -> None:
    settings, unknown = load_settings(MemoryDisk(), None, {"storePathRootDir": "/data"}, machine=machine())
    assert settings.file == "/data/config/broker.properties"
    assert unknown == []
    told, _ = load_settings(MemoryDisk(), None, {"brokerConfigPath": "/etc/b.conf"}, machine=machine())
    assert told.file == "/etc/b.conf"


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DiskFaultError, match=r"/etc/broker\.conf"):
        load_settings(MemoryDisk(), CONF, machine=machine())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listenPort=high", "listenPort=high: a whole number is expected"),
        ("listenPort=70000", "listenPort=70000: a port"),
        ("listenPort=-1", "listenPort=-1: a port"),
        ("brokerId=9223372036854775808", "brokerId"),
        ("autoCreateTopicEnable=perhaps", "autoCreateTopicEnable=perhaps: true or false"),
        ("defaultTopicQueueNums=0", "defaultTopicQueueNums must be greater than 0"),
        ("brokerPermission=8", "brokerPermission=8: 4 to read"),
        ("maxErrorRateOfBloomFilter=100", "maxErrorRateOfBloomFilter"),
        ("brokerClusterName=", "brokerClusterName must not be empty"),
        ("namesrvAddr=one:9876;two", "namesrvAddr has 'two'"),
        ("flushDiskType=SOMETIMES", "flushDiskType=SOMETIMES"),
        ("logicalDiskSpaceCleanForciblyThreshold=most", "a number is expected"),
        ("brokerIP1=no.such.host", "brokerIP1=no.such.host: no such host is known"),
        ("brokerRole=SLAVE", "brokerRole=SLAVE: a broker is a master here"),
        ("enableControllerMode=true", "enableControllerMode=true"),
        ("enableDLegerCommitLog=true", "enableDLegerCommitLog=true"),
        ("storeType=defaultRocksDB", "storeType=defaultRocksDB"),
        ("authenticationEnabled=true", "authenticationEnabled=true"),
        ("authorizationEnabled=True", "authorizationEnabled=true"),
        ("brokerName=\\u12", "four hexadecimal digits"),
    ],
)
def test_a_value_that_cannot_be_is_named(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(text)


# What the machine is asked


@pytest.mark.parametrize(
    ("text", "address", "in_records"),
    [
        ("", "10.0.0.5:10911", "10.0.0.5"),
        ("brokerIP1=\n", "10.0.0.5:10911", "10.0.0.5"),
        ("bindAddress=::\n", "10.0.0.5:10911", "10.0.0.5"),
        ("bindAddress=127.0.0.1\n", "127.0.0.1:10911", "127.0.0.1"),
        ("bindAddress=192.168.3.4\n", "192.168.3.4:10911", "192.168.3.4"),
        ("bindAddress=127.0.0.1\nbrokerIP1=10.7.7.7\n", "10.7.7.7:10911", "10.7.7.7"),
        ("brokerIP1=::1\n", "[::1]:10911", "::1"),
        ("brokerIP1=[::1]\n", "[::1]:10911", "::1"),
        ("brokerIP1=broker.example\n", "broker.example:10911", "10.0.0.9"),
    ],
)
def test_a_broker_is_known_by_its_address_or_by_that_of_its_machine(
    text: str, address: str, in_records: str
) -> None:
    settings = load(text)
    assert settings.broker.broker_address == address
    assert (settings.store.broker_ip1, settings.store.listen_port) == (in_records, 10911)


def test_what_nobody_said_is_asked_of_the_machine() -> None:
    settings = load()
    assert settings.broker.broker_name == "host-a"
    assert settings.broker.broker_ip2 == "10.0.0.5"
    assert settings.store.store_path_root_dir == "/home/me/store"
    assert settings.broker.name_servers == ()
    told = {"NAMESRV_ADDR": "ns:9876", "ROCKETMQ_HOME": "/opt/rocketmq"}
    settings, _ = load_settings(MemoryDisk(), machine=machine(told))
    assert (settings.broker.name_servers, settings.broker.rocketmq_home) == (("ns:9876",), "/opt/rocketmq")


def test_the_port_for_slaves_is_the_next_one_unless_it_is_said() -> None:
    assert load("listenPort=20911\n").store.ha_listen_port == 20912
    assert load("listenPort=20911\nhaListenPort=0\n").store.ha_listen_port == 20912
    assert load("listenPort=20911\nhaListenPort=7\n").store.ha_listen_port == 7


def test_a_port_that_was_chosen_at_the_start_is_the_one_of_all() -> None:
    settings = load("listenPort=0\n")
    settings.set_listen_port(4711)
    assert settings.broker.broker_address == "10.0.0.5:4711"
    assert (settings.store.listen_port, settings.store.ha_listen_port) == (4711, 4712)


def test_this_machine_has_an_address_and_finds_itself() -> None:
    assert resolve(own_address()) == own_address()
    assert resolve("localhost") in {"127.0.0.1", "::1"}


# Shown and changed


def test_address_and_port_are_one_value_for_broker_and_store() -> None:
    settings = BrokerSettings(BrokerConfig(broker_ip1="10.1.1.1", listen_port=1), StoreConfig(listen_port=2))
    assert (settings.store.broker_ip1, settings.store.listen_port) == ("10.1.1.1", 1)
    assert parse_conf(settings.as_properties())["listenPort"] == "1"


def test_the_important_settings_are_a_part_of_all() -> None:
    settings = load("namesrvAddr=ns:9876\n")
    important = parse_conf(settings.important_properties())
    assert important.items() <= parse_conf(settings.as_properties()).items()
    assert {"brokerName", "namesrvAddr", "storePathRootDir", "deleteWhen", "brokerRole"} <= important.keys()
    assert "sendThreadPoolQueueCapacity" not in important


def test_a_change_is_seen_by_everybody_who_has_the_settings() -> None:
    settings = load()
    broker, store = settings.broker, settings.store
    wanted = settings.changed({"autoCreateTopicEnable": "false", "fileReservedTime": "1"})
    assert (broker.auto_create_topic_enable, store.file_reserved_time) == (True, 72)
    assert settings.become(wanted) == []
    assert (broker.auto_create_topic_enable, store.file_reserved_time) == (False, 1)
    assert settings.as_properties() == wanted.as_properties()


def test_what_is_in_use_since_the_start_changes_with_the_next() -> None:
    settings = load()
    before = dataclasses.replace(settings.store)
    asked = {"mappedFileSizeCommitLog": "4096", "listenPort": "5", "storePathRootDir": "/other"}
    assert settings.become(settings.changed(asked)) == sorted(asked)
    assert settings.store == before
    assert settings.broker.listen_port == 10911
    assert asked.items() <= parse_conf(settings.as_properties()).items()

    assert settings.become(settings.changed({"deleteWhen": "05"})) == sorted(asked)
    assert asked.items() <= settings.texts().items()
    back = {"mappedFileSizeCommitLog": "1073741824", "listenPort": "10911"}
    assert settings.become(settings.changed(back)) == ["storePathRootDir"]
    assert parse_conf(settings.as_properties())["listenPort"] == "10911"


def test_another_address_waits_too_whether_it_is_a_name_or_a_number() -> None:
    settings = load("brokerIP1=broker.example\n")
    for address in ("10.2.2.2", "other.example", "10.3.3.3"):
        assert settings.become(settings.changed({"brokerIP1": address})) == ["brokerIP1"]
        assert settings.broker.broker_ip1 == "broker.example"
        assert settings.store.broker_ip1 == "10.0.0.9"
        assert settings.texts()["brokerIP1"] == address
    assert settings.become(settings.changed({"brokerIP1": "broker.example"})) == []


def test_one_bad_value_leaves_all_as_they_were() -> None:
    settings = load()
    before = settings.as_properties()
    for bad in ({"brokerRole": "SLAVE"}, {"listenPort": "high"}, {"deleteWhen": "24"}):
        with pytest.raises(ConfigError):
            settings.changed({"autoCreateTopicEnable": "false", **bad})
    assert settings.as_properties() == before
