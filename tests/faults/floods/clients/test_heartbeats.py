"""Heartbeats of thousands of groups: processed in slices; a connection that closes meanwhile leaves no
membership."""

from __future__ import annotations

from faults.floods.served import served_before
from orbitmq.broker import time_slices as slices
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from support.broker.client_registry_harness import consumer, heartbeat
from support.broker.requests import talk, talking_to
from support.limit_counts import counts
from support.remoting_harness import eventually

GROUPS = 1500


def beat_of_many_groups() -> Command:
    said = heartbeat("proxy", *(consumer(f"CG_{number}") for number in range(GROUPS)), producers=["PG_a"])
    request = Command(RequestCode.HEART_BEAT, 77, body=said.encode())
    assert len(request.body or b"") > slices.SMALL_BODY
    return request


async def test_a_heartbeat_of_very_many_groups_does_not_block_others() -> None:
    async with talk() as (broker, proxy), talking_to(broker) as other:
        await other.stores()
        answer, served = await served_before(proxy, beat_of_many_groups(), other)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.ext_fields["IS_SUB_CHANGE"] == "true"
        assert served >= 3
        assert len(broker.clients.consumers) == GROUPS
        assert broker.clients.memberships == GROUPS + 1


async def test_a_connection_that_closes_during_its_heartbeat_leaves_no_membership() -> None:
    async with talk() as (broker, other):
        async with talking_to(broker) as proxy:
            proxy.posts(beat_of_many_groups())
            await eventually(lambda: broker.clients.consumers)
        await eventually(lambda: not broker.clients.consumers)
        for _ in range(20):
            await other.pass_time()
        assert (broker.clients.consumers, broker.clients.memberships) == ({}, 0)


@counts(Limit.JSON_BODY)
async def test_a_heartbeat_over_the_size_limit_is_refused() -> None:
    async with talk() as (_, client):
        answer = await client.asks(RequestCode.HEART_BEAT, bytes(slices.MAX_JSON_BODY + 1))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "at most 4194304 are allowed" in (answer.remark or "")
