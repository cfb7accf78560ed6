"""Route epoch: every change that a cached route depends on invalidates the routes of the fast path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.requests import CONSUMERS, TOPIC, Talker, talk
from support.native.marks import needs_native

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker import Broker
    from orbitmq.broker.fast_path.pull import PullFastPath


def pull_path(broker: Broker) -> PullFastPath:
    assert broker._fast_path is not None
    assert broker._fast_path._pulls is not None
    return broker._fast_path._pulls


async def change_topic(broker: Broker, _: Talker) -> None:
    broker.topics.update(TopicConfig("other", 1, 1, 6))


async def change_group(broker: Broker, _: Talker) -> None:
    broker.groups.update(SubscriptionGroupConfig("other"))


async def subscribe(_: Broker, client: Talker) -> None:
    await client.subscribes(SubscriptionData(topic=TOPIC, sub_string="*", sub_version=1), group="other")


async def remove_queues(broker: Broker, client: Talker) -> None:
    await client.stores(topic="other")
    broker.store.queues.remove_topic("other")


async def drop_counters(broker: Broker, client: Talker) -> None:
    await client.stores(topic="other")
    broker.stats.forget_topic("other")


CHANGES = [change_topic, change_group, subscribe, remove_queues, drop_counters]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_each_change_advances_the_epoch(change: Callable[[Broker, Talker], Awaitable[None]]) -> None:
    async with talk(autoCreateTopicEnable="true") as (broker, client):
        await client.stores()
        await client.stores(topic="other")
        before = broker.route_epoch.value
        await change(broker, client)
        assert broker.route_epoch.value > before


@needs_native
async def test_a_new_epoch_clears_the_routes_of_earlier_pulls() -> None:
    async with talk() as (broker, client):
        await client.stores()
        for tags in ("*", "a", "*"):
            await client.pulls(tags=tags)
        assert pull_path(broker)._native.route_count == 2
        broker.route_epoch.advance()
        await client.pulls()
        assert pull_path(broker)._native.route_count == 1


@needs_native
async def test_a_change_of_settings_makes_new_native_objects_without_routes() -> None:
    async with talk() as (broker, client):
        await client.stores()
        await client.pulls()
        before = pull_path(broker)._native
        assert before.route_count == 1
        answer = await client.asks(RequestCode.UPDATE_BROKER_CONFIG, b"maxTransferCountOnMessageInMemory=7\n")
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert pull_path(broker)._native is not before
        assert pull_path(broker)._native.route_count == 0


@needs_native
async def test_a_topic_that_becomes_unreadable_is_refused_to_a_pull_that_had_a_route() -> None:
    async with talk() as (broker, client):
        await client.stores()
        assert (await client.pulls(group=CONSUMERS)).code == ResponseCode.SUCCESS
        broker.topics.update(TopicConfig(TOPIC, 4, 4, 2))
        assert (await client.pulls(group=CONSUMERS)).code == ResponseCode.NO_PERMISSION
