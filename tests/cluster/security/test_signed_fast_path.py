"""Signed requests take the fast path, as long as their user may make them; all others meet the guard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cluster.security.test_access_control import ROOT, SETTINGS, add_alice, allow, secure_cluster
from orbitmq.admin import AdminClient
from orbitmq.auth.credentials import Credentials
from orbitmq.auth.signature import Signer
from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import BrokerPeer, running_broker
from support.broker.requests import CONSUMERS, TOPIC, pull_request, send_request
from support.native.marks import needs_native

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker
    from orbitmq.protocol.command.command import Command

pytestmark = needs_native

ALICES = Credentials("alice", "alices-secret")
FORGED = Credentials("alice", "not-alices-secret")
ROOTS = Credentials("root", "roots-secret")


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[Broker, str]]:
    """A cluster with a topic of one message, and a user without rights."""
    async with secure_cluster() as (broker, names):
        await add_alice(names)
        async with AdminClient(names, **ROOT) as admin:
            await admin.topics.create(TOPIC)
        async with BrokerPeer.of(broker) as peer:
            # The first message of a queue is never native.
            assert (await answers(peer, signed(send_request(), ROOTS)))[0].code == ResponseCode.SUCCESS
        yield broker, names


def signed(request: Command, credentials: Credentials) -> Command:
    Signer(credentials).sign(request)
    return request


async def answers(peer: BrokerPeer, *requests: Command) -> list[Command]:
    """The answers to requests that arrive together."""
    peer.send(b"".join([request.encode() for request in requests]))
    return [await peer.answer_to(request.opaque) for request in requests]


def served(broker: Broker) -> int:
    """Sends and pulls that the native extension has served."""
    path = broker._fast_path
    assert path is not None
    assert path._sends is not None
    assert path._pulls is not None
    return path._sends.served + path._pulls.served


async def test_a_user_with_a_rule_is_served_natively_until_the_rule_is_gone(cluster: tuple[Broker, str]) -> None:
    broker, names = cluster
    async with BrokerPeer.of(broker) as peer:
        before = served(broker)
        [refused] = await answers(peer, signed(send_request(), ALICES))
        assert refused.code == ResponseCode.NO_PERMISSION
        assert served(broker) == before
        await allow(names, f"Topic:{TOPIC}", "Pub")
        found = await answers(peer, *[signed(send_request(binary=binary), ALICES) for binary in (False, True) * 3])
        assert {answer.code for answer in found} == {ResponseCode.SUCCESS}
        assert served(broker) == before + 6
        async with AdminClient(names, **ROOT) as admin:
            await admin.access.delete_rules("User:alice")
        [refused] = await answers(peer, signed(send_request(), ALICES))
        assert refused.code == ResponseCode.NO_PERMISSION
        assert served(broker) == before + 6


async def test_a_disabled_user_and_a_former_password_are_refused(cluster: tuple[Broker, str]) -> None:
    broker, names = cluster
    await allow(names, f"Topic:{TOPIC}", "Pub")
    async with BrokerPeer.of(broker) as peer, AdminClient(names, **ROOT) as admin:
        assert (await answers(peer, signed(send_request(), ALICES)))[0].code == ResponseCode.SUCCESS
        await admin.access.alter_user("alice", password="another")
        assert (await answers(peer, signed(send_request(), ALICES)))[0].code == ResponseCode.NO_PERMISSION
        another = Credentials("alice", "another")
        assert (await answers(peer, signed(send_request(), another)))[0].code == ResponseCode.SUCCESS
        await admin.access.alter_user("alice", status="disable")
        assert (await answers(peer, signed(send_request(), another)))[0].code == ResponseCode.NO_PERMISSION


async def test_good_and_forged_requests_that_arrive_together_get_their_own_answers(
    cluster: tuple[Broker, str],
) -> None:
    broker, names = cluster
    await allow(names, f"Topic:{TOPIC}", "Pub")
    makers = [ALICES, ALICES, FORGED, ALICES, None, ALICES, ROOTS]
    requests = [send_request() if maker is None else signed(send_request(), maker) for maker in makers]
    other = signed(send_request(topic="bills"), ALICES)
    async with BrokerPeer.of(broker) as peer:
        found = await answers(peer, *requests, other)
    good = [maker in {ALICES, ROOTS} for maker in makers]
    assert [answer.code == ResponseCode.SUCCESS for answer in found] == [*good, False]
    assert {answer.code for answer in found} == {ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION}


async def test_connections_whose_sends_are_batched_keep_their_rights(cluster: tuple[Broker, str]) -> None:
    broker, names = cluster
    await allow(names, f"Topic:{TOPIC}", "Pub")
    makers = [ALICES, FORGED, ROOTS, ALICES, FORGED]
    peers = [await BrokerPeer.to(broker) for _ in makers]
    try:
        for _ in range(5):
            found = await asyncio.gather(
                *(answers(peer, signed(send_request(), maker)) for peer, maker in zip(peers, makers, strict=True))
            )
            assert [answer.code == ResponseCode.SUCCESS for [answer] in found] == [True, False, True, True, False]
    finally:
        for peer in peers:
            await peer.leave()


async def test_pulls_need_the_rules_of_topic_and_group(cluster: tuple[Broker, str]) -> None:
    broker, names = cluster
    async with BrokerPeer.of(broker) as peer:
        asked = await answers(peer, signed(pull_request(), ROOTS))
        assert asked[0].code in {ResponseCode.SUCCESS, ResponseCode.SUBSCRIPTION_NOT_EXIST}
        await allow(names, f"Topic:{TOPIC}", "Sub")
        assert (await answers(peer, signed(pull_request(), ALICES)))[0].code == ResponseCode.NO_PERMISSION
        await allow(names, f"Group:{CONSUMERS}", "Sub")
        [answer] = await answers(peer, signed(pull_request(), ALICES))
        assert answer.code == asked[0].code
        [answer] = await answers(peer, signed(pull_request(), FORGED))
        assert answer.code == ResponseCode.NO_PERMISSION


async def test_with_a_quota_the_guard_counts_every_request() -> None:
    quota = {"maxRequestsPerSecondOfUser": "1000000", "autoCreateTopicEnable": "true"}
    for more, is_native in ((quota, False), ({**quota, "maxRequestsPerSecondOfUser": "0"}, True)):
        async with running_broker(MemoryDisk(), **{**SETTINGS, **more}) as broker, BrokerPeer.of(broker) as peer:
            for _ in range(3):
                [answer] = await answers(peer, signed(send_request(), ROOTS))
                assert answer.code == ResponseCode.SUCCESS
            assert (served(broker) > 0) is is_native
