"""Admin requests for settings: list, change at run time, persist before they take effect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, cast

import pytest

from orbitmq.broker.config.admin import ConfigRequests
from orbitmq.broker.config.host_info import Machine
from orbitmq.broker.config.loader import load_settings
from orbitmq.platform.settings import parse_conf
from orbitmq.protocol.bodies import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting.processor import RequestRefusedError, refusal
from orbitmq.testing import ManualClock, MemoryDisk
from support.wire_captures import all_captured

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.remoting import Connection

T = TypeVar("T")

CONF = "/etc/broker.conf"
CONNECTION = cast("Connection", object())
UPDATE = RequestCode.UPDATE_BROKER_CONFIG
SHOW = RequestCode.GET_BROKER_CONFIG


async def after_a_while(work: Callable[[], T]) -> T:
    """Simulates a thread that takes time while the event loop continues."""
    await asyncio.sleep(0)
    done = work()
    await asyncio.sleep(0)
    return done


def unknown_host(name: str) -> str:
    raise OSError(-2, "Name or service not known", name)


class Asked:
    """The settings of a broker, and a client."""

    def __init__(self, text: bytes = b"brokerName=a\n") -> None:
        self.disk = MemoryDisk()
        self.disk.write(CONF, text)
        self.clock = ManualClock(1000)
        machine = Machine(lambda: "host", lambda: "10.0.0.5", unknown_host, {}, "/home/me")
        self.settings, _ = load_settings(self.disk, CONF, machine=machine)
        self.changes = self.permission_changes = 0
        self.requests = ConfigRequests(
            self.settings, self.disk, after_a_while, self.clock, self._changed, self._permission_changed
        )

    def _changed(self) -> None:
        self.changes += 1

    def _permission_changed(self) -> None:
        self.permission_changes += 1

    async def ask(self, code: int, body: bytes | None = None) -> Command:
        """The response, encoded and decoded."""
        request = Command(code, 7, body=body)
        try:
            if code == UPDATE:
                answer = await self.requests.update(request, CONNECTION)
            else:
                answer = self.requests.show(request, CONNECTION)
        except RequestRefusedError as error:
            answer = refusal(request, error)
        return answer

    def state(self) -> tuple[str, bytes, DataVersion]:
        return self.settings.as_properties(), self.disk.read(CONF), self.requests.data_version


def test_all_settings_are_listed_with_their_version() -> None:
    asked = Asked()
    answer = asyncio.run(asked.ask(SHOW))
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields == {"version": '{"counter":0,"stateVersion":0,"timestamp":1000}'}
    lines = (answer.body or b"").decode().splitlines()
    assert "brokerName=a" in lines
    assert "fileReservedTime=72" in lines
    assert lines == sorted(lines)


async def test_a_setting_is_changed_at_runtime_and_in_its_file() -> None:
    asked = Asked(b"brokerName=a\n")
    asked.clock.advance(500)
    answer = await asked.ask(UPDATE, b"autoCreateTopicEnable=false\nneverHeardOf=1\n")
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.SUCCESS, None, None)
    assert not asked.settings.broker.auto_create_topic_enable
    assert asked.disk.read(CONF).decode() == asked.settings.as_properties()
    assert asked.disk.read(CONF + ".bak") == b"brokerName=a\n"
    assert asked.requests.data_version == DataVersion(1, 0, 1500)
    assert b"neverHeardOf" not in asked.disk.read(CONF)
    again, unknown = load_settings(asked.disk.power_cut(), CONF)
    assert again.broker == asked.settings.broker
    assert unknown == []


async def test_changes_at_the_same_time_all_count() -> None:
    asked = Asked()
    bodies = (b"deleteWhen=05\n", b"fileReservedTime=1\n", b"brokerPermission=4\n")
    await asyncio.gather(*(asked.ask(UPDATE, body) for body in bodies))
    stored = parse_conf(asked.disk.read(CONF).decode())
    assert (stored["deleteWhen"], stored["fileReservedTime"], stored["brokerPermission"]) == ("05", "1", "4")
    assert asked.settings.as_properties() == asked.disk.read(CONF).decode()
    assert asked.requests.data_version.counter == 3


@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList", "listenPort", "deleteWhen"])
async def test_some_settings_cannot_be_changed_at_runtime(key: str) -> None:
    asked = Asked(b"configBlackList=listenPort;deleteWhen\n")
    before = asked.state()
    answer = await asked.ask(UPDATE, f"autoCreateTopicEnable=false\n{key}=1\n".encode())
    assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
    assert asked.state() == before


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("brokerPermission=high", "brokerPermission=high"),
        ("listenPort=5", "listenPort cannot be changed while the broker runs"),
        ("messageDelayLevel=9999999999999d", "messageDelayLevel has '9999999999999d'"),
        ("maxIndexNum=1", "maxIndexNum cannot be changed"),
        ("reviveQueueNum=2147483647", "reviveQueueNum=2147483647: a number from 1 to 1024 is expected"),
        ("aclEnable=true", "aclEnable cannot be changed over the network"),
        ("useTLS=true", "useTLS cannot be changed over the network"),
        ("tls.server.mode=enforcing", "tls.server.mode cannot be changed over the network"),
        ("regionId=a\\u0002DELAY\\u00013", "control characters are not allowed"),
        ("enableControllerMode=true", "controllerAddr is empty"),
        ("archiveTopics=(a", "archiveTopics=(a is no regular expression"),
        ("brokerIP1=no.such.host", "brokerIP1 cannot be changed over the network"),
        ("brokerName=" + "a" * 300_000, "the settings have 300040 bytes; at most 262144 are allowed"),
        ("flushDiskType=NEVER", "flushDiskType=NEVER"),
        ("brokerRole=SLAVE", "brokerRole=SLAVE has an id above 0"),
        ("messageDelayLevel=1y", "messageDelayLevel"),
        ("deleteWhen=\\u1", "four hexadecimal digits"),
        ("regionId=\\ud800", "is not text"),
    ],
)
async def test_one_invalid_value_refuses_the_whole_change(line: str, named: str) -> None:
    asked = Asked()
    before = asked.state()
    answer = await asked.ask(UPDATE, f"autoCreateTopicEnable=false\n{line}\n".encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert named in (answer.remark or "")
    assert asked.state() == before


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_dir"])
async def test_a_change_that_cannot_be_persisted_has_no_effect(operation: str) -> None:
    asked = Asked()
    shown = asked.settings.as_properties()
    asked.disk.fail(operation)
    answer = await asked.ask(UPDATE, b"autoCreateTopicEnable=false\n")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("cannot write broker.conf: ")
    assert (asked.settings.as_properties(), asked.requests.data_version.counter) == (shown, 0)
    assert (await asked.ask(UPDATE, b"autoCreateTopicEnable=false\n")).code == ResponseCode.SUCCESS


async def test_a_change_of_nothing_succeeds() -> None:
    asked = Asked()
    before = asked.state()
    assert (await asked.ask(UPDATE)).code == ResponseCode.SUCCESS
    assert asked.state() == before


async def test_a_setting_that_needs_a_restart_is_stored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    assert (await asked.ask(UPDATE, b"maxMessageSize=5\nfileReservedTime=1\n")).code == ResponseCode.SUCCESS
    assert (asked.settings.store.max_message_size, asked.settings.store.file_reserved_time) == (4194304, 1)
    assert "settings: restart needed for maxMessageSize" in caplog.text
    assert b"\nmaxMessageSize=5\n" in asked.disk.read(CONF)
    assert b"\nmaxMessageSize=5\n" in ((await asked.ask(SHOW)).body or b"")


async def test_a_changed_permission_is_registered() -> None:
    asked = Asked()
    await asked.ask(UPDATE, b"deleteWhen=05\n")
    await asked.ask(UPDATE, b"brokerPermission=6\n")
    assert (asked.changes, asked.permission_changes) == (2, 0)
    await asked.ask(UPDATE, b"brokerPermission=4\n")
    assert (asked.permission_changes, asked.settings.broker.broker_permission) == (1, 4)


async def test_operators_are_answered_as_by_a_real_broker() -> None:
    shown = next(one for one in all_captured() if one.request_code == SHOW)
    asked = Asked(shown.frame[2])
    questions = {
        (one.scenario, one.connection, one.header["opaque"]): one
        for one in all_captured()
        if one.code in {UPDATE, SHOW} and not one.is_response and one.to_server
    }
    answered = 0
    for one in all_captured():
        question = questions.get((one.scenario, one.connection, one.header["opaque"]))
        if not one.is_response or question is None:
            continue
        answer = await asked.ask(question.code, question.frame[2] or None)
        assert (answer.code, answer.remark) == (one.code, one.header["remark"]), str(one)
        assert (answer.ext_fields or {}).keys() == one.ext_fields.keys(), str(one)
        if question.code == SHOW:
            theirs = parse_conf(one.frame[2].decode())
            assert parse_conf((answer.body or b"").decode()).keys() == theirs.keys()
        answered += 1
    assert answered == len(questions) > 8
