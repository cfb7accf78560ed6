"""Offsets of the broker's own services: no client moves them, so a service skips no message."""

from __future__ import annotations

import pytest

from faults.services.poison import HALF, REVIVE
from faults.services.probes import services
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from orbitmq.protocol.names import REVIVE_GROUP, TRANSACTION_GROUP
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0
from support.broker.pop_harness import BACK_MS, Popper, bodies_of
from support.broker.requests import CONSUMERS, TOPIC, pull_request

FAR = 1_000_000
OWN = [(REVIVE_GROUP, REVIVE), (TRANSACTION_GROUP, HALF)]


async def moved(client: Popper, group: str, topic: str) -> list[int]:
    """Try to move the offsets of a group in every way that a client has; returns the response codes."""
    await client.asks(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group)
    asked = [
        await client.asks(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group, cleanOffset=True),
        await client.asks(
            RequestCode.CLONE_GROUP_OFFSET, srcGroup=CONSUMERS, destGroup=group, topic=topic, offline=True
        ),
        await client.asks(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            topic=topic, group=group, timestamp=-1, isForce=True, queueId=-1, offset=-1,
        ),
        await client.asks(
            RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=0, commitOffset=FAR
        ),
    ]  # fmt: skip
    await client.says(
        pull_request(0, topic, group=group, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, commitOffset=FAR)
    )
    return [answer.code for answer in asked]


@pytest.mark.parametrize(("group", "topic"), OWN)
async def test_no_request_moves_the_offsets_of_a_service(group: str, topic: str) -> None:
    async with services() as running:
        await running.probe()
        await running.run(BACK_MS)
        offsets = running.broker.offsets
        before = offsets.of_group(group, topic)
        assert before
        codes = await moved(running.popper, group, topic)
        assert ResponseCode.SUCCESS not in codes
        assert offsets.of_group(group, topic) == before


async def test_a_client_commit_on_the_revive_topic_does_not_stop_redelivery() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with services(disk, clock) as running:
        await running.popper.stores(b"popped")
        assert bodies_of(await running.popper.gets()) == [b"popped"]
        for topic in (REVIVE, TOPIC):
            await moved(running.popper, REVIVE_GROUP, topic)
    async with services(disk, clock) as running:
        await running.run(BACK_MS)
        assert bodies_of(await running.popper.gets()) == [b"popped"]
