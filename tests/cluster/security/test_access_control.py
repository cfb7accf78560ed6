"""A cluster with authentication and authorization: our clients, our administration, and strangers."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import Message
from orbitmq.admin import AdminClient, RefusedError
from orbitmq.aio import LitePullConsumer, Producer
from orbitmq.auth.credentials import Credentials
from orbitmq.auth.signature import Signer
from orbitmq.client.errors import OrbitMQError
from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.bodies import PolicyEntryInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import running_broker
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker

ROOT: Any = {"access_key": "root", "secret_key": "roots-secret"}
ALICE: Any = {"access_key": "alice", "secret_key": "alices-secret"}
SETTINGS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    # A loaded machine refuses no sends.
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": "60000",
    "waitTimeMillsInSendQueue": "60000",
    "initAuthenticationUser": '{"username":"root","password":"roots-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inners-secret"}',
}


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[Broker, str]]:
    """A broker and a name server that share their users."""
    async with secure_cluster() as found:
        yield found


@contextlib.asynccontextmanager
async def secure_cluster(**settings: Any) -> AsyncIterator[tuple[Broker, str]]:
    disk = MemoryDisk()
    config = NameServerConfig(
        bind_address=HOST,
        listen_port=0,
        kv_config_path="/names/kvConfig.json",
        config_store_path="/names/namesrv.properties",
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=SETTINGS["initAuthenticationUser"],
        inner_client_authentication_credentials=SETTINGS["innerClientAuthenticationCredentials"],
    )
    names = NameServer(config, disk=disk)
    await names.start()
    address = f"{HOST}:{names.port}"
    try:
        async with running_broker(
            disk, access=names.access, namesrvAddr=address, **{**SETTINGS, **settings}
        ) as broker:
            await broker.registration.settled()
            yield broker, address
    finally:
        await names.stop()


async def allow(names: str, resource: str, *actions: str, decision: str = "Allow") -> None:
    entry = PolicyEntryInfo(resource, list(actions), None, decision)
    async with AdminClient(names, **ROOT) as admin:
        await admin.access.create_rules("User:alice", [entry])


async def add_alice(names: str) -> None:
    async with AdminClient(names, **ROOT) as admin:
        await admin.access.create_user("alice", "alices-secret")


async def answer(broker: Broker, request: Command) -> Command:
    client = RemotingClient()
    try:
        return await client.call(f"{HOST}:{broker.port}", request, 10)
    finally:
        await client.close()


async def test_a_super_user_sends_and_receives(cluster: tuple[Broker, str]) -> None:
    _, names = cluster
    async with AdminClient(names, **ROOT) as admin:
        await admin.topics.create("orders")
    async with Producer(names, **ROOT) as producer:
        await producer.send(Message("orders", b"1"))
    async with LitePullConsumer(
        names, group="readers", consume_from_where="CONSUME_FROM_FIRST_OFFSET", **ROOT
    ) as consumer:
        consumer.subscribe("orders")
        assert [message.body for message in await consumer.poll(30)] == [b"1"]


async def test_requests_without_a_signature_are_refused_whatever_they_ask(cluster: tuple[Broker, str]) -> None:
    broker, _ = cluster
    for code in sorted({int(code) for code in RequestCode}):
        found = await answer(broker, Command(code, ext_fields={"topic": "orders"}))
        assert found.code in {ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}, code
        if found.code == ResponseCode.NO_PERMISSION:
            assert found.remark == "username cannot be null."


@pytest.mark.parametrize(
    ("credentials", "remark"),
    [
        ({"access_key": "nobody", "secret_key": "roots-secret"}, "User:nobody is not found."),
        ({"access_key": "root", "secret_key": "wrong"}, "check signature failed."),
    ],
)
async def test_wrong_credentials_are_refused_as_by_rocketmq(
    cluster: tuple[Broker, str], credentials: Any, remark: str
) -> None:
    broker, names = cluster
    async with AdminClient(names, **credentials) as admin:
        with pytest.raises(RefusedError) as caught:
            await admin.access.users(broker=f"{HOST}:{broker.port}")
    assert (caught.value.code, caught.value.remark) == (16, remark)


async def test_a_normal_user_may_do_what_the_rules_allow(cluster: tuple[Broker, str]) -> None:
    _, names = cluster
    async with AdminClient(names, **ROOT) as admin:
        await admin.topics.create("orders")
        await admin.topics.create("secrets")
    await add_alice(names)
    async with Producer(names, **ALICE) as producer:
        with pytest.raises(OrbitMQError, match=r"User:alice has no permission to access Topic:orders"):
            await producer.send(Message("orders", b"1"))
        await allow(names, "Topic:orders", "Pub")
        await producer.send(Message("orders", b"1"))
        with pytest.raises(OrbitMQError, match="Topic:secrets"):
            await producer.send(Message("secrets", b"1"))


async def test_a_user_who_is_disabled_or_deleted_is_refused_on_open_connections(
    cluster: tuple[Broker, str],
) -> None:
    _, names = cluster
    async with AdminClient(names, **ROOT) as admin:
        await admin.topics.create("orders")
        await add_alice(names)
        await allow(names, "Topic:*", "All")
        async with Producer(names, **ALICE) as producer:
            await producer.send(Message("orders", b"1"))
            await admin.access.alter_user("alice", status="disable")
            with pytest.raises(OrbitMQError, match="User:alice is disabled"):
                await producer.send(Message("orders", b"2"))
            await admin.access.alter_user("alice", status="enable")
            await producer.send(Message("orders", b"3"))
            await admin.access.delete_user("alice")
            with pytest.raises(OrbitMQError, match="User:alice is not found"):
                await producer.send(Message("orders", b"4"))


async def test_a_normal_user_cannot_become_a_super_user(cluster: tuple[Broker, str]) -> None:
    broker, names = cluster
    await add_alice(names)
    await allow(names, "Cluster:*", "All")
    at = f"{HOST}:{broker.port}"
    async with AdminClient(names, **ALICE) as alice:
        for attempt in (
            alice.access.create_user("mallory", "m", user_type="Super", broker=at),
            alice.access.alter_user("alice", user_type="Super", broker=at),
            alice.access.alter_user("root", password="mine", broker=at),
            alice.access.delete_user("root", broker=at),
        ):
            with pytest.raises(RefusedError, match="super user"):
                await attempt


async def test_a_normal_user_reads_no_passwords(cluster: tuple[Broker, str]) -> None:
    broker, names = cluster
    await add_alice(names)
    await allow(names, "Cluster:*", "Get")
    async with AdminClient(names, **ALICE) as alice:
        found = await alice.access.users(broker=f"{HOST}:{broker.port}")
        assert {user.username for user in found} == {"root", "inner", "alice"}
        assert not any(user.password for user in found)


async def test_a_message_is_read_by_its_real_topic_and_not_by_the_named_one(cluster: tuple[Broker, str]) -> None:
    broker, names = cluster
    async with AdminClient(names, **ROOT) as admin:
        await admin.topics.create("secrets")
    async with Producer(names, **ROOT) as producer:
        await producer.send(Message("secrets", b"hidden"))
    await add_alice(names)
    await allow(names, "Topic:mine", "All")
    await allow(names, "Group:mine", "All")
    signer = Signer(Credentials("alice", "alices-secret"))
    for request in (
        Command(33, ext_fields={"topic": "mine", "offset": "0"}),
        Command(36, ext_fields={"group": "mine", "offset": "0", "delayLevel": "0", "originTopic": "mine"}),
        Command(37, ext_fields={"topic": "mine", "commitLogOffset": "0", "tranStateTableOffset": "0"}),
    ):
        signer.sign(request)
        found = await answer(broker, request)
        assert found.code == ResponseCode.NO_PERMISSION
        assert "Topic:secrets" in (found.remark or "")


async def test_users_and_rules_outlive_a_restart_and_the_file_has_no_password() -> None:
    disk = MemoryDisk()
    async with running_broker(disk, **SETTINGS) as broker:
        table = broker.access.table
        assert table is not None
        assert table.users["root"].is_super
        at = f"{HOST}:{broker.port}"
        client = RemotingClient(signer=broker.access.signer)
        body = json.dumps({"username": "alice", "password": "alices-secret"}).encode()
        created = await client.call(at, Command(3001, ext_fields={"username": "alice"}, body=body), 10)
        assert created.code == ResponseCode.SUCCESS
        await client.close()
    assert b"secret" not in disk.read("/messages/config/auth.json").replace(b'"secret"', b"")
    async with running_broker(disk, **SETTINGS) as broker:
        assert broker.access.table is not None
        assert broker.access.table.users["alice"].password == "alices-secret"


async def test_the_audit_log_says_who_did_what_and_who_was_refused(cluster: tuple[Broker, str]) -> None:
    broker, names = cluster
    await add_alice(names)
    await answer(broker, Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "orders"}))
    assert broker.access.audit is not None
    await broker.access.audit.persist()
    lines = [json.loads(line) for line in broker.disk.read("/names/config/audit.jsonl").splitlines()]
    created = next(line for line in lines if line["request"] == "AUTH_CREATE_USER")
    assert (created["user"], created["fields"]) == ("root", {"username": "alice"})
    refused = next(line for line in lines if line["request"] == "DELETE_TOPIC_IN_BROKER")
    assert (refused["outcome"], refused["reason"]) == ("refused", "username cannot be null.")
    assert "secret" not in json.dumps(lines)


async def test_without_rules_only_the_signature_counts() -> None:
    async with running_broker(MemoryDisk(), **{**SETTINGS, "authorizationEnabled": "false"}) as broker:
        client = RemotingClient(signer=broker.access.signer)
        found = await client.call(f"{HOST}:{broker.port}", Command(RequestCode.GET_BROKER_RUNTIME_INFO), 10)
        await client.close()
        assert found.code == ResponseCode.SUCCESS


async def test_a_white_listed_code_needs_no_signature_and_opens_no_other() -> None:
    settings = {**SETTINGS, "authenticationWhitelist": "28,3001", "authorizationWhitelist": "28,3001"}
    async with running_broker(MemoryDisk(), **settings) as broker:
        assert (await answer(broker, Command(28))).code == ResponseCode.SUCCESS
        assert (await answer(broker, Command(26))).code == ResponseCode.NO_PERMISSION
        body = json.dumps({"username": "mallory", "password": "m", "userType": "Super"}).encode()
        # The access key is the sender's word only.
        claims = Command(3001, ext_fields={"username": "mallory", "AccessKey": "root"}, body=body)
        assert (await answer(broker, claims)).code != ResponseCode.SUCCESS
