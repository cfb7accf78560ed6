"""A broker with RocketMQ's first access control (``aclEnable``), over the wire."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.auth.credentials import Credentials
from orbitmq.auth.signature import Signer
from orbitmq.broker.config.loader import load_settings
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import running_broker
from support.broker.requests import pull_request, send_request
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from orbitmq.broker import Broker

FILE = """
globalWhiteRemoteAddresses: [%s]
accounts:
- {accessKey: producer, secretKey: "12345678", defaultTopicPerm: DENY, topicPerms: ["orders=PUB"]}
- {accessKey: operator, secretKey: "87654321", admin: true}
"""
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "


@contextlib.asynccontextmanager
async def plain_broker(home: Path, trusted: str = "") -> AsyncIterator[Broker]:
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_text(FILE % trusted)
    async with running_broker(MemoryDisk(), aclEnable="true", rocketmqHome=str(home)) as broker:
        yield broker


async def answer(broker: Broker, request: Command, *credentials: str) -> Command:
    client = RemotingClient(signer=Signer(Credentials(*credentials)) if credentials else None)
    try:
        return await client.call(f"{HOST}:{broker.port}", request, 10)
    finally:
        await client.close()


async def test_requests_need_the_signature_of_an_account_and_its_permission(tmp_path: Path) -> None:
    async with plain_broker(tmp_path) as broker:
        orders, others = send_request(topic="orders"), send_request(topic="others")
        for request, credentials, remark in (
            (orders, (), "No accessKey is configured"),
            (orders, ("unknown", "12345678"), "No acl config for unknown"),
            (orders, ("producer", "wrong"), "Check signature failed for accessKey=producer"),
            (others, ("producer", "12345678"), "User:producer has no permission to access Topic:others"),
            (pull_request(topic="orders"), ("producer", "12345678"), "User:producer has no permission"),
        ):
            found = await answer(broker, request, *credentials)
            assert found.code == ResponseCode.SYSTEM_ERROR
            assert (found.remark or "").startswith(EXCEPTION + remark)
        assert (await answer(broker, orders, "producer", "12345678")).code == ResponseCode.SUCCESS
        assert (await answer(broker, others, "operator", "87654321")).code == ResponseCode.SUCCESS


async def test_no_code_is_served_without_a_signature(tmp_path: Path) -> None:
    async with plain_broker(tmp_path) as broker:
        client = RemotingClient()
        for code in sorted({int(code) for code in RequestCode}):
            found = await client.call(f"{HOST}:{broker.port}", Command(code, ext_fields={"topic": "orders"}), 10)
            assert found.code in {ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}, code
            if found.code == ResponseCode.SYSTEM_ERROR:
                assert found.remark == EXCEPTION + "No accessKey is configured"
        await client.close()


async def test_only_admins_administer(tmp_path: Path) -> None:
    async with plain_broker(tmp_path) as broker:
        for code in (17, 25, 26, 200, 207, 215):
            found = await answer(broker, Command(code, ext_fields={"topic": "orders"}), "producer", "12345678")
            assert found.code == ResponseCode.SYSTEM_ERROR
            assert EXCEPTION in (found.remark or "")
        shown = await answer(broker, Command(RequestCode.GET_BROKER_CONFIG), "operator", "87654321")
        assert shown.code == ResponseCode.SUCCESS


async def test_an_address_of_the_white_list_needs_no_signature(tmp_path: Path) -> None:
    async with plain_broker(tmp_path, "127.0.0.*") as broker:
        assert (await answer(broker, send_request(topic="others"))).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"authenticationEnabled": "true"}, "give one of the two"),
    ],
)
def test_two_access_controls_are_one_too_many(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(MemoryDisk(), None, {"aclEnable": "true", **settings})


async def test_without_its_file_a_broker_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no plain_acl\.yml"):
        async with running_broker(MemoryDisk(), aclEnable="true", rocketmqHome=str(tmp_path)):
            pass
