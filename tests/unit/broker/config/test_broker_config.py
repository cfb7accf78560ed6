"""Broker settings: all keys of a real broker, broker.conf files, and values from the machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.host_info import Machine, own_address, resolve
from orbitmq.broker.config.ignored_settings import PROCESSORS, IgnoredBrokerSettings
from orbitmq.broker.config.loader import FIXED, IMPORTANT, NEEDS_RESTART, BrokerSettings, load_settings
from orbitmq.broker.config.ranges import BROKER_RANGES
from orbitmq.platform.settings import ConfigError, Int64, parse_conf, settings_of
from orbitmq.protocol.codes import RequestCode
from orbitmq.remoting.config import RemotingSettings
from orbitmq.store import DiskFaultError, FlushDiskType, StoreConfig
from orbitmq.store.replication.settings import BrokerRole
from orbitmq.testing import MemoryDisk
from support.wire_captures import all_captured

if TYPE_CHECKING:
    from collections.abc import Mapping

CONF = "/etc/broker.conf"


def unknown_host(name: str) -> str:
    raise OSError(-2, "Name or service not known", name)


def machine(environment: Mapping[str, str] | None = None) -> Machine:
    """A machine with one address, which can resolve one other host."""

    def resolved(name: str) -> str:
        return "10.0.0.9" if name == "broker.example" else unknown_host(name)

    return Machine(lambda: "host-a", lambda: "10.0.0.5", resolved, environment or {}, "/home/me")


def load(text: str = "", **overrides: str) -> BrokerSettings:
    disk = MemoryDisk()
    disk.write(CONF, text.encode())
    return load_settings(disk, CONF, overrides, machine=machine())[0]


def shown_by_apache() -> list[str]:
    """All settings as returned by RocketMQ 5.5.0 brokers."""
    bodies = [one.frame[2].decode() for one in all_captured() if one.request_code == RequestCode.GET_BROKER_CONFIG]
    assert bodies
    return bodies


# Settings of a real broker


def test_all_settings_of_a_real_broker_are_known_and_listed_unchanged() -> None:
    for body in shown_by_apache():
        disk = MemoryDisk()
        disk.write(CONF, body.encode())
        settings, unknown = load_settings(disk, CONF, machine=machine())
        assert unknown == []
        assert settings.as_properties() == body


def test_defaults_are_those_of_rocketmq() -> None:
    # Settings of the captured broker, and values from its machine.
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


def test_lists_of_keys_name_existing_settings() -> None:
    known = settings_of(BrokerConfig).keys() | settings_of(StoreConfig).keys()
    assert known >= IMPORTANT
    assert known >= NEEDS_RESTART >= FIXED


# Files


def test_the_file_of_a_running_cluster_loads_as_it_is() -> None:
    disk = MemoryDisk()
    disk.write(
        CONF,
        b"# ours\nbrokerClusterName = east\nbrokerName=broker-a\nbrokerId=0\nnamesrvAddr=one:9876;two:9876\n"
        b"brokerIP1=10.1.1.1\nlistenPort=20911\nstorePathRootDir=/data\nflushDiskType=SYNC_FLUSH\n"
        b"brokerRole=ASYNC_MASTER\ndeleteWhen=04\nfileReservedTime=48\ntieredStoreFilePath=/tiered\n",
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


def test_unknown_keys_are_preserved_in_the_file() -> None:
    settings = load("tieredStoreFilePath=/tiered\n")
    assert "tieredStoreFilePath=/tiered\n" in settings.as_properties()
    assert "tieredStoreFilePath=/other\n" in settings.changed({"tieredStoreFilePath": "/other"}).as_properties()
    assert "neverHeardOf" not in settings.changed({"neverHeardOf": "1"}).as_properties()


def test_the_command_line_precedes_the_file() -> None:
    settings = load("brokerName=a\nlistenPort=1\n", brokerName="b", bindAddress="127.0.0.1")
    assert (settings.broker.broker_name, settings.broker.listen_port) == ("b", 1)
    assert settings.broker.broker_address == "127.0.0.1:1"


def test_without_a_file_changes_go_to_the_store() -> None:
    settings, unknown = load_settings(MemoryDisk(), None, {"storePathRootDir": "/data"}, machine=machine())
    assert settings.file == "/data/config/broker.properties"
    assert unknown == []
    told, _ = load_settings(MemoryDisk(), None, {"brokerConfigPath": "/etc/b.conf"}, machine=machine())
    assert told.file == "/etc/b.conf"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(DiskFaultError, match=r"/etc/broker\.conf"):
        load_settings(MemoryDisk(), CONF, machine=machine())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listenPort=high", "listenPort=high: a whole number is expected"),
        ("listenPort=70000", "listenPort=70000: a number from 0 to 65535 is expected"),
        ("listenPort=-1", "listenPort=-1: a number from 0 to 65535 is expected"),
        ("brokerId=9223372036854775808", "brokerId"),
        ("autoCreateTopicEnable=perhaps", "autoCreateTopicEnable=perhaps: true or false"),
        ("defaultTopicQueueNums=0", "defaultTopicQueueNums=0: a number from 1 to 65535 is expected"),
        ("brokerPermission=8", "brokerPermission=8: a number from 0 to 7 is expected"),
        ("maxErrorRateOfBloomFilter=100", "maxErrorRateOfBloomFilter"),
        ("brokerClusterName=", "brokerClusterName must not be empty"),
        ("namesrvAddr=one:9876;two", "namesrvAddr has 'two'"),
        ("flushDiskType=SOMETIMES", "flushDiskType=SOMETIMES"),
        ("logicalDiskSpaceCleanForciblyThreshold=most", "a number is expected"),
        ("brokerIP1=no.such.host", "brokerIP1=no.such.host: unknown host"),
        ("brokerRole=SLAVE", "brokerId=0: a broker with brokerRole=SLAVE has an id above 0"),
        ("brokerId=1", "brokerId=1: a broker with brokerRole=ASYNC_MASTER is a master, whose id is 0"),
        ("tls.server.mode=enforcing", "needs a certificate: set tls.server.certPath"),
        ("tls.server.mode=sometimes", "disabled, permissive or enforcing is expected"),
        ("tls.server.need.client.auth=require", "set tls.server.trustCertPath"),
        ("tls.test.mode.enable=true", "orbitmq serve --secure"),
        ("authorizationEnabled=true", "needs authenticationEnabled=true"),
        ("authenticationEnabled=true\ninitAuthenticationUser=x", "initAuthenticationUser is not of the form"),
        ("adminNetworks=here", "adminNetworks: .* give addresses or CIDR blocks"),
        ("authenticationWhitelist=10,send", "authenticationWhitelist has 'send'"),
        ("authenticationProvider=my.Provider", "own providers cannot be plugged in"),
        ("haMasterAddress=nowhere", "haMasterAddress=nowhere: give host:port"),
        ("reviveQueueNum=2147483647", "reviveQueueNum=2147483647: a number from 1 to 1024 is expected"),
        ("brokerName=a/b", "brokerName='a/b': a name has at most 127 bytes, no slash"),
        ("brokerClusterName=a\\u000ab", "no control character"),
        ("regionId=a\\u0002DELAY\\u00013", "control characters are not allowed"),
        ("brokerName=\\u12", "four hexadecimal digits"),
    ],
)
def test_an_invalid_value_is_named(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(text)


# Unsupported settings


@pytest.mark.parametrize(
    "line",
    [
        "enableDLegerCommitLog=true",
        "duplicationEnable=true",
        "messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore",
        "storeType=defaultRocksDB",
        "configManagerVersion=v2",
        "popConsumerKVServiceEnable=true",
        "timerRocksDBEnable=true",
        "transRocksDBEnable=true",
    ],
)
def test_an_unsupported_setting_is_refused_by_name(line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(f"{line}\n")
    assert str(refused.value).startswith(f"{line}: ")
    assert any(word in str(refused.value) for word in ("; give ", " and give ", "; leave it out"))
    key, _, value = line.partition("=")
    settings = load()
    if key in settings.texts():
        with pytest.raises(ConfigError):
            settings.changed({key: value})


@pytest.mark.parametrize(
    "line",
    [
        "aclEnable=false",
        "brokerRole=ASYNC_MASTER",
        "useTLS=false",
        "tls.server.mode=permissive",
        "tls.server.mode=disabled",
        "totalReplicas=3",
        "inSyncReplicas=2",
        "minInSyncReplicas=2",
        "allAckInSyncStateSet=true",
        "haMasterAddress=10.0.0.1:10912",
        "haSlaveFallbehindMax=1024",
        "brokerRole=SYNC_MASTER",
        "brokerId=0",
    ],
)
def test_supported_values_of_the_same_settings_are_accepted(line: str) -> None:
    assert f"{line}\n" in load(f"{line}\n").as_properties()


STOCK = {
    # The files of RocketMQ's conf/ directory, without comments.
    "broker.conf": ("DefaultCluster", "broker-a", 0, "ASYNC_MASTER"),
    "2m-noslave/broker-a.properties": ("DefaultCluster", "broker-a", 0, "ASYNC_MASTER"),
    "2m-2s-async/broker-a.properties": ("DefaultCluster", "broker-a", 0, "ASYNC_MASTER"),
    "2m-2s-async/broker-a-s.properties": ("DefaultCluster", "broker-a", 1, "SLAVE"),
    "2m-2s-sync/broker-a.properties": ("DefaultCluster", "broker-a", 0, "SYNC_MASTER"),
    "2m-2s-sync/broker-a-s.properties": ("DefaultCluster", "broker-a", 1, "SLAVE"),
}


@pytest.mark.parametrize("name", STOCK)
def test_the_conf_files_of_rocketmq_are_accepted(name: str) -> None:
    cluster, broker, broker_id, role = STOCK[name]
    settings = load(
        f"brokerClusterName={cluster}\nbrokerName={broker}\nbrokerId={broker_id}\ndeleteWhen=04\n"
        f"fileReservedTime=48\nbrokerRole={role}\nflushDiskType=ASYNC_FLUSH\n"
    )
    assert settings.store.broker_role is BrokerRole[role]
    assert settings.broker.broker_id == broker_id
    assert settings.without_effect == []


def test_ignored_settings_are_reported() -> None:
    settings = load("sendMessageThreadPoolNums=999\nputMessageTimeout=1\ndeleteWhen=05\n")
    assert settings.without_effect == ["putMessageTimeout", "sendMessageThreadPoolNums"]
    assert load().without_effect == []


def test_every_number_that_is_used_has_a_range() -> None:
    kept = settings_of(IgnoredBrokerSettings).keys() - settings_of(RemotingSettings).keys()
    used = {
        one.name for key, one in settings_of(BrokerConfig).items() if one.kind in (int, Int64) and key not in kept
    }
    assert used == BROKER_RANGES.keys()


# Values from the machine


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


def test_unset_values_come_from_the_machine() -> None:
    settings = load()
    assert settings.broker.broker_name == "host-a"
    assert settings.broker.broker_ip2 == "10.0.0.5"
    assert settings.store.store_path_root_dir == "/home/me/store"
    assert settings.broker.name_servers == ()
    told = {"NAMESRV_ADDR": "ns:9876", "ROCKETMQ_HOME": "/opt/rocketmq"}
    settings, _ = load_settings(MemoryDisk(), machine=machine(told))
    assert (settings.broker.name_servers, settings.broker.rocketmq_home) == (("ns:9876",), "/opt/rocketmq")


def test_the_port_for_slaves_defaults_to_the_next_one() -> None:
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


# Listing and changing


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


def test_a_change_is_visible_through_shared_settings() -> None:
    settings = load()
    broker, store = settings.broker, settings.store
    wanted = settings.changed({"autoCreateTopicEnable": "false", "fileReservedTime": "1"})
    assert (broker.auto_create_topic_enable, store.file_reserved_time) == (True, 72)
    assert settings.become(wanted) == []
    assert (broker.auto_create_topic_enable, store.file_reserved_time) == (False, 1)
    assert settings.as_properties() == wanted.as_properties()


def test_settings_used_at_start_change_at_the_next_start() -> None:
    settings = load()
    before = dataclasses.replace(settings.store)
    asked = {"maxMessageSize": "4096", "brokerIP2": "10.9.9.9", "timerWheelEnable": "false"}
    assert settings.become(settings.changed(asked)) == sorted(asked)
    assert settings.store == before
    assert settings.broker.broker_ip2 == "10.0.0.5"
    assert asked.items() <= parse_conf(settings.as_properties()).items()

    assert settings.become(settings.changed({"deleteWhen": "05"})) == sorted(asked)
    assert asked.items() <= settings.texts().items()
    back = {"maxMessageSize": "4194304", "brokerIP2": "10.0.0.5"}
    assert settings.become(settings.changed(back)) == ["timerWheelEnable"]
    assert parse_conf(settings.as_properties())["brokerIP2"] == "10.0.0.5"


@pytest.mark.parametrize("key", sorted(FIXED))
def test_settings_that_depend_on_machine_or_files_cannot_change_at_run_time(key: str) -> None:
    settings = load("storePathCommitLog=/log\n")
    with pytest.raises(ConfigError, match=f"{key} cannot be changed while the broker runs: stop it, set {key} in"):
        settings.changed({key: "7"})
    same = settings.texts().get(key, "")
    assert settings.changed({key: same}).as_properties() == settings.as_properties()


def test_a_changed_address_needs_a_restart_as_name_or_number() -> None:
    settings = load("brokerIP1=broker.example\n")
    for address in ("10.2.2.2", "other.example", "10.3.3.3"):
        assert settings.become(settings.changed({"brokerIP1": address})) == ["brokerIP1"]
        assert settings.broker.broker_ip1 == "broker.example"
        assert settings.store.broker_ip1 == "10.0.0.9"
        assert settings.texts()["brokerIP1"] == address
    assert settings.become(settings.changed({"brokerIP1": "broker.example"})) == []


def test_one_invalid_value_leaves_all_settings_unchanged() -> None:
    settings = load()
    before = settings.as_properties()
    for bad in ({"brokerRole": "SLAVE"}, {"brokerPermission": "high"}, {"deleteWhen": "24"}):
        with pytest.raises(ConfigError):
            settings.changed({"autoCreateTopicEnable": "false", **bad})
    assert settings.as_properties() == before
