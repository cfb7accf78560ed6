"""Access control with unmodified peers: ``mqadmin`` against our broker, and our SDK against Apache's."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from conformance.servers.processes import serving
from orbitmq import Message
from orbitmq.admin import AdminClient
from orbitmq.aio import Producer
from orbitmq.client.errors import OrbitMQError
from orbitmq.protocol.bodies import PolicyEntryInfo
from peers.admin import AdminRunner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conformance.servers.processes import Serving

PROVIDERS = "org.apache.rocketmq.auth"
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": '{"username":"root","password":"roots-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inners-secret"}',
    # How the tests see that a broker is ready.
    "authenticationWhitelist": "26,106",
    "authorizationWhitelist": "26,106",
    "waitTimeMillsInSendQueue": "60000",
}
ROOT: Any = {"access_key": "root", "secret_key": "roots-secret"}
PROPERTY = '"\\'
ALICE: Any = {"access_key": "alice", "secret_key": "alices-secret"}


class Operator:
    """``mqadmin`` with credentials, which it reads from its file before each command."""

    def __init__(self, server: Serving, admin: AdminRunner, home: Path) -> None:
        self.server, self.admin = server, admin
        self._file = home / "conf" / "tools.yml"
        self._file.parent.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments: str, key: str = "root", secret: str = "roots-secret") -> str:
        self._file.write_text(f"accessKey: {key}\nsecretKey: {secret}\n" if key else "{}\n")
        return self.admin.run(*arguments)

    def at_broker(self, command: str, *arguments: str, **credentials: str) -> str:
        return self.run(command, "-b", self.server.broker_address, *arguments, **credentials)


@pytest.fixture(scope="module")
def operator(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("acl")
    home = folder / "mqadmin"
    with (
        serving(folder / "server", SETTINGS, apache=False) as server,
        AdminRunner(home=home, nameserver=server.nameserver) as admin,
    ):
        yield Operator(server, admin, home)


def test_mqadmin_manages_users(operator: Operator) -> None:
    operator.at_broker("createUser", "-u", "alice", "-p", "alices-secret")
    assert "The user is existed" in operator.at_broker("createUser", "-u", "alice", "-p", "x")
    listed = operator.at_broker("listUser")
    assert {line.split()[0] for line in listed.splitlines() if "secret" in line} == {"root", "inner", "alice"}
    operator.at_broker("updateUser", "-u", "alice", "-s", "disable")
    assert "disable" in operator.at_broker("getUser", "-u", "alice")
    operator.at_broker("updateUser", "-u", "alice", "-s", "enable")
    operator.at_broker("createUser", "-u", "bob", "-p", "bobs-secret", "-t", "Super")
    assert "Super" in operator.at_broker("getUser", "-u", "bob")
    operator.at_broker("deleteUser", "-u", "bob")
    assert "bob" not in operator.at_broker("listUser")


def test_mqadmin_manages_rules_and_the_java_client_obeys_them(operator: Operator) -> None:
    operator.at_broker("createUser", "-u", "carol", "-p", "carols-secret")
    operator.at_broker("updateTopic", "-t", "orders")
    carol: Any = {"key": "carol", "secret": "carols-secret"}
    send = ("sendMessage", "-t", "orders", "-p", "hello")
    assert "no permission to access Topic:orders" in operator.run(*send, **carol)
    operator.at_broker("createAcl", "-s", "User:carol", "-r", "Topic:orders", "-a", "Pub", "-d", "Allow")
    assert "SEND_OK" in operator.run(*send, **carol)
    assert "Topic:orders" in operator.at_broker("listAcl", "-s", "carol")
    assert "Pub" in operator.at_broker("getAcl", "-s", "User:carol")
    operator.at_broker("updateAcl", "-s", "User:carol", "-r", "Topic:orders", "-a", "Pub", "-d", "Deny")
    assert "the decision is deny" in operator.run(*send, **carol)
    operator.at_broker("deleteAcl", "-s", "User:carol")
    assert "no permission" in operator.run(*send, **carol)


@pytest.mark.parametrize(
    ("credentials", "remark"),
    [
        ({"key": "root", "secret": "wrong"}, "check signature failed"),
        ({"key": "nobody", "secret": "roots-secret"}, "User:nobody is not found"),
        ({"key": ""}, "username cannot be null"),
    ],
)
def test_wrong_and_missing_credentials_are_refused(
    operator: Operator, credentials: dict[str, str], remark: str
) -> None:
    assert remark in operator.at_broker("listUser", **credentials)
    # The Java client hides why the name server refused to name the brokers of the topic.
    assert "No route info of this topic" in operator.run(
        "sendMessage", "-t", "orders", "-p", "hello", **credentials
    )


PLAIN = """
accounts:
- {accessKey: producer, secretKey: "12345678", topicPerms: ["orders=%s"]}
- {accessKey: operator, secretKey: "87654321", admin: true}
"""


def test_the_java_client_and_mqadmin_have_the_rights_of_their_plain_account(apache: None, tmp_path: Path) -> None:
    home = tmp_path / "rocketmq"
    file = home / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text(PLAIN % "DENY" + "globalWhiteRemoteAddresses: []\n")
    settings = {
        "aclEnable": "true",
        "rocketmqHome": str(home),
        "innerClientAuthenticationCredentials": '{"accessKey":"operator","secretKey":"87654321"}',
        "authenticationWhitelist": "26,106",
        "authorizationWhitelist": "26,106",
        "waitTimeMillsInSendQueue": "60000",
    }
    tool = tmp_path / "mqadmin"
    with (
        serving(tmp_path / "server", settings, apache=False) as server,
        AdminRunner(home=tool, nameserver=server.nameserver) as admin,
    ):
        operator = Operator(server, admin, tool)
        boss: Any = {"key": "operator", "secret": "87654321"}
        producer: Any = {"key": "producer", "secret": "12345678"}
        assert "success" in operator.at_broker("updateTopic", "-t", "orders", **boss)
        assert "AclException" in operator.at_broker("updateTopic", "-t", "more", **producer)
        send = ("sendMessage", "-t", "orders", "-p", "hello")
        assert "SEND_OK" in operator.run(*send, **boss)
        for refused in (producer, {**producer, "secret": "wrong"}, {"key": ""}):
            assert "SEND_OK" not in operator.run(*send, **refused)
        file.write_text(PLAIN % "PUB")
        deadline = time.monotonic() + 60
        while "SEND_OK" not in (said := operator.run(*send, **producer)):
            assert time.monotonic() < deadline, said


def test_our_sdk_signs_for_apaches_broker(apache: None, tmp_path: Path) -> None:
    with serving(tmp_path, SETTINGS, apache=True) as server:
        asyncio.run(_with_apache(server.nameserver))


async def _with_apache(names: str) -> None:
    async with AdminClient(names, **ROOT) as admin:
        await admin.topics.create("orders")
        await admin.access.create_user("alice", "alices-secret")
        async with Producer(names, **ROOT) as producer:
            await producer.send(Message("orders", b"by root"))
            await producer.send_oneway(Message("orders", b"oneway"))
        async with Producer(names, **ALICE) as producer:
            with pytest.raises(OrbitMQError, match="no permission to access Topic:orders"):
                await producer.send(Message("orders", b"by alice"))
            entry = PolicyEntryInfo("Topic:orders", ["Pub"], None, "Allow")
            await admin.access.create_rules("User:alice", [entry])
            await producer.send(Message("orders", b"by alice"))
            # A compressed body and escaped properties are part of what is signed.
            await producer.send(Message("orders", b"x" * 10_000, keys=["größer"], properties={"p": PROPERTY}))
    async with Producer(names, access_key="root", secret_key="wrong") as producer:
        with pytest.raises(OrbitMQError, match="check signature failed"):
            await producer.send(Message("orders", b"1"))
    async with Producer(names) as producer:
        with pytest.raises(OrbitMQError, match="username cannot be null"):
            await producer.send(Message("orders", b"1"))
