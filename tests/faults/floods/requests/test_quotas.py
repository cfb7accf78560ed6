"""Requests per second of a user, and sends per second of a topic: refused beyond, and others are served."""

from __future__ import annotations

import json
from typing import Any

from orbitmq.auth.credentials import Credentials
from orbitmq.auth.signature import Signer
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.broker.requests import TOPIC, talk
from support.limit_counts import counts
from support.remoting_harness import HOST

USERS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inners-secret"}',
    "maxRequestsPerSecondOfUser": "5",
}


async def codes_of(client: RemotingClient, address: str, code: int, count: int) -> list[int]:
    return [(await client.call(address, Command(code), 10)).code for _ in range(count)]


@counts(Limit.REQUESTS_OF_USER)
async def test_a_user_beyond_the_quota_is_told_so_and_others_are_served() -> None:
    clock = ManualClock(T0)
    async with running_broker(MemoryDisk(), clock, **USERS) as broker:
        address = f"{HOST}:{broker.port}"
        root = RemotingClient(signer=broker.access.signer)
        for name in ("alice", "carol"):
            body = json.dumps({"username": name, "password": "s"}).encode()
            made = await root.call(address, Command(3001, ext_fields={"username": name}, body=body), 10)
            assert made.code == ResponseCode.SUCCESS
        alice = RemotingClient(signer=Signer(Credentials("alice", "s")))
        carol = RemotingClient(signer=Signer(Credentials("carol", "s")))
        asked = RequestCode.GET_BROKER_RUNTIME_INFO
        assert await codes_of(alice, address, asked, 8) == [0] * 5 + [ResponseCode.SYSTEM_BUSY] * 3
        refused = await alice.call(address, Command(asked), 10)
        assert "User:alice sent more than 5 requests in a second (maxRequestsPerSecondOfUser)" in (
            refused.remark or ""
        )
        assert await codes_of(carol, address, asked, 5) == [0] * 5
        assert await codes_of(root, address, asked, 20) == [0] * 20, "super users have no quota"
        heartbeat = Command(RequestCode.HEART_BEAT, body=b'{"clientID":"c"}')
        assert (await alice.call(address, heartbeat, 10)).code == ResponseCode.SUCCESS
        clock.advance(1000)
        assert await codes_of(alice, address, asked, 5) == [0] * 5
        for client in (root, alice, carol):
            await client.close()


@counts(Limit.SENDS_OF_TOPIC)
async def test_a_topic_beyond_the_quota_refuses_sends_and_other_topics_take_them() -> None:
    async with talk(maxSendsPerSecondOfTopic=3) as (_, client):
        # The send that creates a topic is not counted.
        for topic in (TOPIC, "Other"):
            await client.stores(topic=topic)
        answers = [await client.sends() for _ in range(5)]
        assert [answer.code for answer in answers] == [0] * 3 + [ResponseCode.SYSTEM_BUSY] * 2
        assert "maxSendsPerSecondOfTopic" in (answers[-1].remark or "")
        batch = await client.sends(code=RequestCode.SEND_BATCH_MESSAGE)
        assert batch.code == ResponseCode.SYSTEM_BUSY
        await client.stores(topic="Other")
