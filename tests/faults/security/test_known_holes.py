"""Known holes of message brokers, a test each: what a stranger or a normal user must not get from a server."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING

import pytest

from orbitmq.auth.audit import AuditLog
from orbitmq.auth.errors import AuthorizationError
from orbitmq.auth.local_only import ADMINISTRATIVE, check_source, networks_of
from orbitmq.broker.config.admin import ConfigRequests
from orbitmq.broker.config.loader import load_settings
from orbitmq.nameserver import NameServerConfig
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.properties_file import replace_conf
from orbitmq.platform.settings import ConfigError
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import BrokerPeer, running_broker
from support.controller_harness import QuietController
from support.nameserver_harness import QuietServer, Wire

if TYPE_CHECKING:
    from pathlib import Path

UPDATE = RequestCode.UPDATE_BROKER_CONFIG


# CVE-2023-33246 and CVE-2023-37582: settings at run time become files and commands


@pytest.mark.parametrize(
    "line",
    [
        "rocketmqHome=-c $@|sh . echo touch /tmp/x",
        "brokerConfigPath=/etc/cron.d/x",
        "storePathCommitLog=/tmp/elsewhere",
        "storePathRootDir=/tmp/elsewhere",
        "storePathEpochFile=/tmp/elsewhere",
        "readOnlyCommitLogStorePaths=/tmp/elsewhere",
        "messageStorePlugIn=evil.Plugin",
        "namesrvAddr=203.0.113.9:9876",
        "brokerIP1=203.0.113.9",
        "haMasterAddress=203.0.113.9:10912",
        "metricsGrpcExporterTarget=203.0.113.9:4317",
        "bindAddress=0.0.0.0",
        "trustedProxies=0.0.0.0/0",
        "configBlackList=",
        "adminNetworks=*",
        "authenticationEnabled=true",
        "authenticationWhitelist=3001",
        "auditLog=false",
        'initAuthenticationUser={"username":"m","password":"m"}',
        "tls.server.mode=disabled",
        "regionId=a\\u000arocketmqHome=/tmp",
    ],
)
async def test_no_path_host_class_or_credential_changes_over_the_network(line: str) -> None:
    disk = MemoryDisk()
    async with running_broker(disk) as broker, BrokerPeer.of(broker) as peer:
        before = broker.settings.as_properties()
        answer = await peer.asks(UPDATE, f"autoCreateTopicEnable=false\n{line}\n".encode())
        assert answer.code != ResponseCode.SUCCESS
        assert broker.settings.as_properties() == before
    assert disk.stat("/messages/config/broker.properties") is None


@pytest.mark.parametrize("line", ["configStorePath=/tmp/x", "kvConfigPath=/tmp/x", "trustedProxies=0.0.0.0/0"])
def test_a_name_server_writes_no_other_file(line: str) -> None:
    server = QuietServer()
    assert server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, f"{line}\n".encode()).code != ResponseCode.SUCCESS
    assert server.disk.stat("/ns/namesrv.properties") is None


# Kafka CVE-2026-33558: secrets in logs and answers


async def test_settings_are_shown_without_their_secrets(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    disk.write("/etc/broker.conf", b"dbPassword=hidden-1\nproxy.accessKey=hidden-2\nbrokerName=a\n")
    settings, _ = load_settings(disk, "/etc/broker.conf", {"metricsGrpcExporterHeader": "authorization:hidden-3"})
    requests = ConfigRequests(settings, disk, in_thread, ManualClock(1), lambda: None, lambda: None)
    answer = requests.show(Command(RequestCode.GET_BROKER_CONFIG), None)  # type: ignore[arg-type]
    assert b"hidden" not in (answer.body or b"")
    assert b"dbPassword=" in (answer.body or b"")
    assert "hidden-3" in settings.as_properties(), "the file keeps them"


def test_secrets_are_not_in_the_text_of_a_configuration() -> None:
    config = NameServerConfig(
        authentication_enabled=True,
        init_authentication_user='{"username":"root","password":"hidden"}',
        inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"hidden"}',
    )
    assert "hidden" not in repr(config)


def test_a_private_settings_file_stays_private_when_it_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1\n")
    path.chmod(0o600)
    replace_conf(LocalDisk(), str(path), "a=2\n")
    assert [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("broker.conf", "broker.conf.bak")] == [
        0o600
    ] * 2


# Administrative requests of strangers, where there are no users


def request(code: int, fields: dict[str, str] | None = None) -> bytes:
    return Command(code, opaque=1, ext_fields=fields or {}).encode()


def wire(remote: str) -> Wire:
    found = Wire()
    found.remote_address = remote
    return found


@pytest.mark.parametrize("code", sorted(ADMINISTRATIVE & QuietServer().server.handlers.keys()))
def test_a_stranger_administers_no_name_server(code: int) -> None:
    server = QuietServer()
    before = server.state()
    (answer,) = server.send(request(code), wire("203.0.113.9:4711"))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "adminNetworks" in (answer.remark or "")
    assert server.state() == before


async def test_a_stranger_administers_no_controller_and_elects_no_master() -> None:
    reads = {
        *(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RequestCode.CONTROLLER_GET_REPLICA_INFO),
        *(RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA),
        RequestCode.GET_CONTROLLER_CONFIG,
    }
    async with QuietController() as server:
        for code in sorted(server.controller.handlers.keys() - reads):
            answer = await server.ask(code, None, wire("203.0.113.9:4711"), brokerName="a", clusterName="c")
            assert answer.code == ResponseCode.NO_PERMISSION, code
            assert "adminNetworks" in (answer.remark or "")


def test_a_stranger_takes_over_no_broker_name() -> None:
    server = QuietServer(admin_networks="192.0.2.0/24")
    fields = {
        "brokerName": "a",
        "brokerAddr": "203.0.113.9:1",
        "clusterName": "c",
        "haServerAddr": "",
        "brokerId": "0",
    }
    (answer,) = server.send(request(RequestCode.REGISTER_BROKER, fields), wire("203.0.113.9:4711"))
    assert answer.code == ResponseCode.NO_PERMISSION
    (answer,) = server.send(request(RequestCode.REGISTER_BROKER, fields), wire("192.0.2.7:4711"))
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("remote", "local", "networks", "accepted"),
    [
        ("127.0.0.1:1", "127.0.0.1:9876", "", True),
        ("[0:0:0:0:0:0:0:1]:1", "[::1]:9876", "", True),
        ("10.0.0.5:1", "10.0.0.5:9876", "", True),
        ("10.0.0.6:1", "10.0.0.5:9876", "", False),
        ("10.0.0.6:1", "10.0.0.5:9876", "10.0.0.0/24", True),
        ("10.0.1.6:1", "10.0.0.5:9876", "10.0.0.0/24,10.0.1.6", True),
        ("203.0.113.9:1", "10.0.0.5:9876", "*", True),
    ],
)
def test_administration_comes_from_this_machine_or_listed_networks(
    remote: str, local: str, networks: str, accepted: bool
) -> None:
    if accepted:
        check_source(remote, local, networks_of(networks), "X")
    else:
        with pytest.raises(AuthorizationError, match="adminNetworks"):
            check_source(remote, local, networks_of(networks), "X")


# RocketMQ #11178: rules without signatures trust the access key that a client names


def test_rules_without_authentication_are_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="needs authenticationEnabled"):
        NameServerConfig(authorization_enabled=True)


# A flood of refusals fills neither the memory nor the disk


async def test_refusals_of_one_sender_are_summed_up() -> None:
    disk = MemoryDisk()
    audit = AuditLog(disk, "/a", 4096, lambda: 1, in_thread)
    header = (25, 1, 0, 493, LanguageCode.JAVA, None, {"Signature": "hidden", "topic": "t" * 10_000})
    for _ in range(50_000):
        audit.refused(header, "203.0.113.9:1", "no")
    await audit.persist()
    text = disk.read("/a/audit.jsonl").decode()
    assert text.count("\n") == 1
    assert '"count":50000' in text
    assert "hidden" not in text
    for number in range(200):
        audit.refused(header, f"203.0.113.{number}:1", "no")
        await audit.persist()
    assert sum(len(disk.read(f"/a/{name}")) for name in disk.list("/a")) < 6 * 4096
    await asyncio.sleep(0)
