"""Known holes with access control on: what a user without rules, and a stranger, must not get."""

from __future__ import annotations

import ast
import contextlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.auth import signature
from orbitmq.auth.credentials import Credentials
from orbitmq.auth.local_only import ADMINISTRATIVE
from orbitmq.auth.policies import Acl, Policy, PolicyEntry, PolicyType
from orbitmq.auth.resources import Action, resource_of
from orbitmq.auth.signature import Signer
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import BrokerPeer, running_broker
from support.broker.requests import TOPIC, send_request
from support.paths import PROJECT
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker

USERS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "brokerFastFailureEnable": "false",
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inners-secret"}',
}
NEEDS_NO_RULE = {
    # Names no group: it keeps the client itself alive. Acts of a client on its own are in the body.
    *(RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT),
    # Goes to the client that asked.
    *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    # Without an offset nothing is shown.
    *(RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.END_TRANSACTION),
    # Empty lists.
    *(RequestCode.BATCH_ACK_MESSAGE, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
}
"""Requests that a user without rules may send as they are sent here."""


@contextlib.asynccontextmanager
async def broker_with_alice(
    *rules: tuple[str, Action], **settings: Any
) -> AsyncIterator[tuple[Broker, RemotingClient]]:
    """A broker, and a client of a normal user with these rules."""
    async with running_broker(MemoryDisk(), **{**USERS, **settings}) as broker:
        root = RemotingClient(signer=broker.access.signer)
        body = json.dumps({"username": "alice", "password": "alices-secret"}).encode()
        created = await root.call(
            f"{HOST}:{broker.port}", Command(3001, ext_fields={"username": "alice"}, body=body), 10
        )
        assert created.code == ResponseCode.SUCCESS
        await root.close()
        entries = []
        for text, action in rules:
            resource = resource_of(text)
            assert resource is not None
            entries.append(PolicyEntry(resource, (action,)))
        table = broker.access.table
        assert table is not None
        table.acls = {"alice": Acl("User:alice", (Policy(PolicyType.CUSTOM, tuple(entries)),))}
        alice = RemotingClient(signer=Signer(Credentials("alice", "alices-secret")))
        try:
            yield broker, alice
        finally:
            await alice.close()


async def ask(broker: Broker, client: RemotingClient, request: Command) -> Command:
    return await client.call(f"{HOST}:{broker.port}", request, 10)


async def codes_served(broker: Broker, client: RemotingClient, fields: dict[str, str]) -> set[int]:
    """The request codes that were neither refused nor unknown."""
    served = set()
    for code in sorted({int(code) for code in RequestCode}):
        found = await ask(broker, client, Command(code, ext_fields=dict(fields)))
        if found.code not in {ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}:
            served.add(code)
    return served


# RocketMQ PR 10925, CVE-2024-23321, Kafka CVE-2026-41115


@pytest.mark.parametrize("fields", [{}, {"topic": TOPIC, "b": TOPIC, "consumerGroup": "g", "group": "g"}])
async def test_a_user_without_rules_is_served_no_request_that_shows_or_changes_something(
    fields: dict[str, str],
) -> None:
    async with broker_with_alice() as (broker, alice):
        assert await codes_served(broker, alice, fields) <= set(map(int, NEEDS_NO_RULE))


async def test_requests_without_header_fields_are_checked_too() -> None:
    async with broker_with_alice() as (broker, _), BrokerPeer.of(broker) as peer:
        for code in (25, 26, 28, 34, 200050, 401):
            peer.send(Command(code, opaque=code).encode())
            assert (await peer.answer_to(code)).code == ResponseCode.NO_PERMISSION


async def test_a_batch_acknowledges_only_what_its_user_may_read() -> None:
    body = json.dumps(
        {"acks": [{"c": "secret-group", "t": "secrets", "r": "0", "so": 0, "q": 0, "rq": 0}]}
    ).encode()
    async with broker_with_alice((f"Topic:{TOPIC}", Action.ALL)) as (broker, alice):
        found = await ask(broker, alice, Command(RequestCode.BATCH_ACK_MESSAGE, body=body))
        assert found.code == ResponseCode.NO_PERMISSION


async def test_a_retry_topic_belongs_to_the_named_group() -> None:
    async with broker_with_alice(("Group:mine", Action.ALL)) as (broker, alice):
        fields = {"topic": "%RETRY%other", "consumerGroup": "mine", "queueId": "0", "queueOffset": "0"}
        found = await ask(broker, alice, Command(RequestCode.PULL_MESSAGE, ext_fields=fields))
        assert found.code == ResponseCode.NO_PERMISSION


# RocketMQ 8613 to 8615, 9349; POP in 5.3


async def test_rules_can_be_managed_with_authentication_only_and_by_no_normal_user_against_super_users() -> None:
    async with broker_with_alice(authorizationEnabled="false") as (broker, alice):
        body = json.dumps({"username": "mallory", "password": "m", "userType": "Super"}).encode()
        found = await ask(broker, alice, Command(3001, ext_fields={"username": "mallory"}, body=body))
        assert found.code != ResponseCode.SUCCESS
        root = RemotingClient(signer=broker.access.signer)
        rules = {"policies": [{"entries": [{"resource": "Topic:x", "actions": ["Pub"], "decision": "Allow"}]}]}
        made = Command(3006, ext_fields={"subject": "User:alice"}, body=json.dumps(rules).encode())
        assert (await ask(broker, root, made)).code == ResponseCode.SUCCESS
        await root.close()


async def test_every_user_may_send_traces() -> None:
    async with broker_with_alice(traceTopicEnable="true") as (broker, alice):
        sent = send_request(topic="RMQ_SYS_TRACE_TOPIC")
        assert (await ask(broker, alice, sent)).code == ResponseCode.SUCCESS


async def test_a_user_with_the_rules_for_it_pops() -> None:
    rules = ((f"Topic:{TOPIC}", Action.ALL), ("Group:mine", Action.SUB))
    async with broker_with_alice(*rules) as (broker, alice):
        assert (await ask(broker, alice, send_request())).code == ResponseCode.SUCCESS
        fields = {
            "consumerGroup": "mine",
            "topic": TOPIC,
            "queueId": "-1",
            "maxMsgNums": "1",
            "invisibleTime": "60000",
            "pollTime": "0",
            "bornTime": "0",
            "initMode": "0",
            "expType": "TAG",
            "exp": "*",
        }
        popped = await ask(broker, alice, Command(RequestCode.POP_MESSAGE, ext_fields=fields))
        assert popped.code == ResponseCode.SUCCESS
        assert b"hello" in (popped.body or b"")


# Pulsar CVE-2022-24280 and the requests of servers: a stranger names no address, and administers nothing


async def test_a_stranger_administers_no_broker() -> None:
    async with running_broker(trustedProxies="127.0.0.1") as broker, BrokerPeer.of(broker) as peer:
        peer.send(b"PROXY TCP4 203.0.113.9 127.0.0.1 4711 10911\r\n")
        fields = {"masterHaAddress": "203.0.113.9:1", "masterAddress": "203.0.113.9:2", "topic": TOPIC}
        refused = set()
        for code in sorted(ADMINISTRATIVE):
            peer.send(Command(code, opaque=code, ext_fields=fields).encode())
            found = await peer.answer_to(code)
            assert found.code in {ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}, code
            if found.code == ResponseCode.NO_PERMISSION:
                assert "adminNetworks" in (found.remark or "")
                refused.add(code)
        assert RequestCode.EXCHANGE_BROKER_HA_INFO in refused
        assert len(refused) > 10


# CVE-2019-17572: names that are paths


@pytest.mark.parametrize("name", ["../../../tmp/x", "..", "a/b", "/etc/cron.d/x", "%RETRY%../x", "a\x00b"])
async def test_no_name_of_a_request_becomes_a_path(name: str) -> None:
    disk = MemoryDisk()
    async with running_broker(disk) as broker, BrokerPeer.of(broker) as peer:
        before = set(disk.list("/")) | set(broker.topics.configs) | set(broker.groups.configs)
        group = json.dumps({"groupName": name}).encode()
        topics = json.dumps({"topicConfigList": [{"topicName": name, "readQueueNums": 1, "writeQueueNums": 1}]})
        beat = {"clientID": "c", "consumerDataSet": [{"groupName": name, "subscriptionDataSet": []}]}
        fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
        for request in (
            send_request(topic=name),
            Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields={**fields, "topicFilterType": "SINGLE_TAG"}),
            Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=topics.encode()),
            Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group),
            Command(RequestCode.HEART_BEAT, body=json.dumps(beat).encode()),
        ):
            await peer.asks(request.code, request.body, **request.ext_fields)
        after = set(disk.list("/")) | set(broker.topics.configs) | set(broker.groups.configs)
        assert {new for new in after - before if "/" in new or ".." in new or "\x00" in new} == set()


# Kafka CVE-2024-56128, Pulsar CVE-2023-51437: signatures are compared in constant time


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    works = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return works(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert not signature.is_signed_by(b"secret", {"Signature": "A" * 28}, b"body")
    assert len(compared) == 1


# ActiveMQ CVE-2023-46604, Pulsar CVE-2024-27135: nothing from the wire becomes code

SERVERS = (
    "auth",
    "broker",
    "nameserver",
    "platform",
    "protocol",
    "proxy",
    "remoting",
    "store",
    "filter",
    "metrics",
)
FORBIDDEN_IMPORTS = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "subprocess",
    "runpy",
    "zipfile",
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("package", SERVERS)
def test_no_server_code_unpickles_evaluates_unpacks_or_starts_a_program(package: str) -> None:
    found = []
    for path in sorted((PROJECT / "src" / "orbitmq" / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                found.append(f"{path.name}: {node.func.id}")
            found += [f"{path.name}: {name}" for name in names if name.split(".")[0] in FORBIDDEN_IMPORTS]
    assert found == []


async def test_a_filter_class_of_a_client_is_refused() -> None:
    fields = {"consumerGroup": "g", "topic": TOPIC, "className": "Evil", "classCRC": "0"}
    async with running_broker() as broker, BrokerPeer.of(broker) as peer:
        found = await peer.asks(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, b"class Evil {}", **fields)
        assert found.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
