"""Settings and key-value entries: read, listed, changed at runtime, and on disk before they count."""

from __future__ import annotations

import pytest

from orbitmq.nameserver import NameServer, NameServerConfig, NameServerLimits, load_config
from orbitmq.nameserver.config_file import controller_config, store_config
from orbitmq.nameserver.kv_config import KvConfig
from orbitmq.platform.settings import ConfigError, from_settings, parse_conf
from orbitmq.protocol.bodies import KVTable
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store import DiskFaultError, StoreError
from orbitmq.testing import MemoryDisk
from support.nameserver_harness import QuietServer, RegisterRequest, run_here

PATH = "/ns/kvConfig.json"


# Settings


def test_the_file_of_a_running_cluster_loads_as_it_is() -> None:
    disk = MemoryDisk()
    disk.write(
        "/etc/namesrv.conf",
        b"# ours\nlistenPort = 9877\nrocketmqHome=/opt/rocketmq\norderMessageEnable=TRUE\n"
        b"kvConfigPath=/data/kv.json\nserverWorkerThreads=4\nnoSuchKey=1\n",
    )
    config, unknown = load_config(disk, "/etc/namesrv.conf")
    assert config.listen_port == 9877
    assert config.order_message_enable
    assert config.kv_config_path == "/data/kv.json"
    assert config.config_store_path == "/etc/namesrv.conf"
    assert unknown == ["noSuchKey"]


@pytest.mark.parametrize(
    "text",
    [
        "listenPort=high",
        "listenPort=70000",
        "listenPort=99999999999999999999",
        "orderMessageEnable=perhaps",
        "scanNotActiveBrokerInterval=0",
        "serverChannelMaxIdleTimeSeconds=-1",
        "kvConfigPath=/data/",
    ],
)
def test_a_value_that_cannot_be_is_named(text: str) -> None:
    key = text.partition("=")[0]
    with pytest.raises(ConfigError, match=key):
        from_settings(NameServerConfig, parse_conf(text))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DiskFaultError, match=r"/none\.conf"):
        load_config(MemoryDisk(), "/none.conf")


def test_settings_are_read_back_as_they_were_written() -> None:
    disk = MemoryDisk()
    config = NameServerConfig(
        product_env_name="Grüße \\ 中 😀 \t.", config_store_path="/ns/namesrv.properties", listen_port=1
    )
    store_config(disk, config)
    again, unknown = load_config(disk, "/ns/namesrv.properties")
    assert again == config
    assert unknown == []


def test_all_settings_are_listed_in_the_order_of_their_keys() -> None:
    body = QuietServer(listen_port=9877).ask(RequestCode.GET_NAMESRV_CONFIG).body
    lines = (body or b"").decode().splitlines()
    assert "listenPort=9877" in lines
    assert "supportActingMaster=false" in lines
    assert lines == sorted(lines)


def test_a_setting_is_changed_at_runtime_and_in_its_file() -> None:
    server = QuietServer()
    server.disk.write("/ns/namesrv.properties", b"listenPort=9876\n")
    answer = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"enableAllTopicList=false\nnoSuchKey=1\n")
    assert answer.code == ResponseCode.SUCCESS
    assert server.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == ResponseCode.SYSTEM_ERROR
    stored, _ = load_config(server.disk, "/ns/namesrv.properties")
    assert stored == server.config
    assert not stored.enable_all_topic_list
    assert server.disk.read("/ns/namesrv.properties.bak") == b"listenPort=9876\n"


@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"])
def test_some_settings_cannot_be_changed_at_runtime(key: str) -> None:
    server = QuietServer()
    before = server.state()
    answer = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, f"enableTopicList=false\n{key}=/x\n".encode())
    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
    assert server.state() == before


def test_more_settings_can_be_kept_from_being_changed() -> None:
    server = QuietServer(config_black_list="listenPort;bindAddress")
    assert server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"listenPort=1\n").code == ResponseCode.NO_PERMISSION


def test_one_bad_value_refuses_the_whole_change() -> None:
    server = QuietServer()
    before = server.state()
    answer = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false\nlistenPort=high\n")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "listenPort" in (answer.remark or "")
    assert server.state() == before
    assert server.disk.stat("/ns/namesrv.properties") is None


def test_a_change_that_cannot_be_written_does_not_count() -> None:
    server = QuietServer()
    before = server.state()
    server.disk.fail("write")
    answer = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false\n")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert server.state() == before


def test_a_change_of_nothing_succeeds() -> None:
    assert QuietServer().ask(RequestCode.UPDATE_NAMESRV_CONFIG).code == ResponseCode.SUCCESS


# Key-value entries


def put(server: QuietServer, namespace: str, key: str, value: str) -> int:
    return server.ask(RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value).code


def test_an_entry_is_put_got_listed_and_deleted() -> None:
    server = QuietServer()
    assert put(server, "NS", "k", "v") == ResponseCode.SUCCESS
    assert put(server, "NS", "l", "w") == ResponseCode.SUCCESS
    assert server.ask(RequestCode.GET_KV_CONFIG, namespace="NS", key="k").ext_fields == {"value": "v"}
    listed = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="NS").body
    assert KVTable.decode(listed or b"").table == {"k": "v", "l": "w"}
    assert server.ask(RequestCode.DELETE_KV_CONFIG, namespace="NS", key="k").code == ResponseCode.SUCCESS
    missing = server.ask(RequestCode.GET_KV_CONFIG, namespace="NS", key="k")
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: NS Key: k")
    assert server.ask(RequestCode.DELETE_KV_CONFIG, namespace="NS", key="k").code == ResponseCode.SUCCESS


def test_a_namespace_that_never_was_is_not_found_and_an_emptied_one_is_empty() -> None:
    server = QuietServer()
    answer = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="NS")
    assert (answer.code, answer.remark) == (22, "No config item, Namespace: NS")
    put(server, "NS", "k", "v")
    server.ask(RequestCode.DELETE_KV_CONFIG, namespace="NS", key="k")
    emptied = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="NS")
    assert (emptied.code, emptied.body) == (ResponseCode.SUCCESS, b'{"table":{}}')


def test_entries_are_on_disk_in_apaches_form_and_survive_a_power_cut() -> None:
    server = QuietServer()
    put(server, "ORDER_TOPIC_CONFIG", "TopicA", "broker-a:4")
    assert server.disk.read(PATH) == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"TopicA":"broker-a:4"}}}'
    put(server, "NS", "k", "v")
    again = KvConfig(server.disk.power_cut(), PATH, NameServerLimits(), run_here)
    again.load()
    assert again.get("ORDER_TOPIC_CONFIG", "TopicA") == "broker-a:4"
    assert again.get("NS", "k") == "v"


def test_entries_that_cannot_be_written_do_not_count() -> None:
    server = QuietServer()
    put(server, "NS", "k", "v")
    before = server.state()
    server.disk.fail("write")
    assert put(server, "NS", "k", "w") == ResponseCode.SYSTEM_ERROR
    assert server.state() == before


def test_entries_need_all_their_parts() -> None:
    server = QuietServer()
    answer = server.ask(RequestCode.PUT_KV_CONFIG, namespace="NS", value="v")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "key" in (answer.remark or "")


def test_entries_over_the_limit_are_refused() -> None:
    server = QuietServer(NameServerLimits(kv_entries=2, kv_characters=50))
    assert put(server, "NS", "k", "v") == ResponseCode.SUCCESS
    assert put(server, "NS", "l", "v") == ResponseCode.SUCCESS
    assert put(server, "NS", "m", "v") == ResponseCode.SYSTEM_ERROR
    assert put(server, "NS", "l", "v" * 60) == ResponseCode.SYSTEM_ERROR
    assert put(server, "NS", "l", "w") == ResponseCode.SUCCESS


async def test_a_file_that_cannot_be_read_keeps_a_name_server_from_starting() -> None:
    disk = MemoryDisk()
    disk.write(PATH, b'{"configTable":{"NS"')
    config = NameServerConfig(kv_config_path=PATH, listen_port=0, bind_address="127.0.0.1")
    with pytest.raises(StoreError, match=r"kvConfig\.json"):
        await NameServer(config, disk=disk).start()
    assert disk.read(PATH) == b'{"configTable":{"NS"'


def test_the_order_of_a_topic_is_only_that_of_its_namespace() -> None:
    server = QuietServer(order_message_enable=True)
    server.register(RegisterRequest())
    put(server, "NS", "TopicA", "x")
    route = server.route("TopicA")
    assert route is not None
    assert route.order_topic_conf is None


async def test_a_setting_that_is_not_done_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    config = NameServerConfig(kv_config_path=PATH, listen_port=0, bind_address="127.0.0.1", cluster_test=True)
    server = NameServer(config, disk=MemoryDisk())
    await server.start()
    await server.stop(grace=0)
    assert [record.getMessage() for record in caplog.records] == ["settings: clusterTest=true has no effect"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("tls.server.mode=enforcing", "tls.server.mode=enforcing needs a certificate"),
        ("bindAddress=", "bindAddress must not be empty"),
        ("waitSecondsForService=-1", "waitSecondsForService=-1: a number from 0 to 2147483647 is expected"),
    ],
)
def test_a_setting_that_promises_what_is_not_done_is_refused_at_the_start_and_at_runtime(
    line: str, reason: str
) -> None:
    disk = MemoryDisk()
    disk.write("/ns/c.conf", f"{line}\n".encode())
    with pytest.raises(ConfigError, match=reason):
        load_config(disk, "/ns/c.conf")
    server = QuietServer()
    before = server.config.as_properties()
    answer = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, f"enableTopicList=false\n{line}\n".encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert line.partition("=")[0] in (answer.remark or "")
    assert server.config.as_properties() == before


async def test_a_controller_runs_in_the_same_process_with_the_keys_of_the_same_file() -> None:
    disk = MemoryDisk()
    disk.write(
        "/ns/c.conf",
        b"enableControllerInNamesrv=true\nlistenPort=0\nbindAddress=127.0.0.1\nkvConfigPath=/ns/kvConfig.json\n"
        b"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-127.0.0.1:0\ncontrollerDLegerSelfId=n0\n"
        b"controllerStorePath=/ns/controller\nadminNetworks=10.0.0.0/8\n",
    )
    config, _ = load_config(disk, "/ns/c.conf")
    texts = parse_conf(disk.read("/ns/c.conf").decode())
    server = NameServer(config, disk=disk, controller=controller_config(disk, texts, config), run_blocking=run_here)
    await server.start()
    try:
        controller = server.controller
        assert controller is not None
        assert controller.port != server.port
        assert (controller.config.group, controller.config.admin_networks) == ("g", "10.0.0.0/8")
        assert controller.storage.leadership().is_leader
        assert disk.stat("/ns/controller/events.log") is not None
        # A setting of the name server that changes leaves those of the controller in the file.
        store_config(disk, config.changed({"enableTopicList": "false"}))
        assert parse_conf(disk.read("/ns/c.conf").decode())["controllerDLegerGroup"] == "g"
    finally:
        await server.stop(grace=0)
    with pytest.raises(ConfigError, match="enableControllerInNamesrv"):
        config.changed({"enableControllerInNamesrv": "false"})


def test_settings_of_the_controller_that_changed_at_run_time_count_at_the_next_start() -> None:
    disk = MemoryDisk()
    config = NameServerConfig(enable_controller_in_namesrv=True, config_store_path="/ns/c.conf")
    disk.write("/ns/c.conf.controller", b"enableElectUncleanMaster=true\nlistenPort=1\n")
    made = controller_config(disk, {"electMasterMaxRetryCount": "7"}, config)
    assert (made.enable_elect_unclean_master, made.elect_master_max_retry_count) == (True, 7)
    assert (made.listen_port, made.config_store_path) == (19876, "/ns/c.conf.controller")
