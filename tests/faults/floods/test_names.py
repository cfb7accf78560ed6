"""Clients that invent names of topics and groups: the clients of one address cannot fill the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.clients import shares as client_shares
from orbitmq.broker.clients.shares import NamedShares
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata import subscription_groups as groups
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import RequestRefusedError
from support.broker.client_registry_harness import consumer, heartbeat
from support.broker.requests import TOPIC, talk, talking_to
from support.limit_counts import counts

if TYPE_CHECKING:
    import pytest

ROOM = 40


async def test_one_address_may_create_half_of_the_remaining_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await other.stores()
        monkeypatch.setattr(client_shares, "MAX_TOPICS", len(broker.topics.configs) + ROOM)
        made = 0
        while (answer := await client.sends(topic=f"invented{made}")).code == ResponseCode.SUCCESS:
            made += 1
        assert made == ROOM // 4
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "has 10 topics already" in (answer.remark or "")
        assert "(clientSharePercent)" in (answer.remark or "")
        assert (await client.sends(topic="invented0")).code == ResponseCode.SUCCESS
        assert (await other.sends(topic="another")).code == ResponseCode.SUCCESS


@counts(Limit.TOPICS)
async def test_deleted_topics_leave_the_share_of_their_creator(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk() as (broker, client):
        monkeypatch.setattr(client_shares, "MAX_TOPICS", len(broker.topics.configs) + 8)
        for name in ("one", "two"):
            await client.stores(topic=name)
        assert (await client.sends(topic="three")).code == ResponseCode.SYSTEM_ERROR
        deleted = await client.asks(RequestCode.DELETE_TOPIC_IN_BROKER, topic="one")
        assert deleted.code == ResponseCode.SUCCESS
        assert (await client.sends(topic="three")).code == ResponseCode.SUCCESS


@counts(Limit.CONSUMER_GROUPS)
async def test_one_address_may_create_half_of_the_remaining_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk() as (broker, client):
        await client.stores()
        monkeypatch.setattr(groups, "MAX_GROUPS", len(broker.groups.configs) + ROOM)
        made = 0
        while (answer := await client.pulls(group=f"invented{made}")).code == ResponseCode.SUCCESS:
            made += 1
        assert made == ROOM // 4
        assert "consumer groups already" in (answer.remark or "")
        beat = await client.asks(RequestCode.HEART_BEAT, heartbeat("c", consumer("further")).encode())
        assert beat.code == ResponseCode.SYSTEM_ERROR
        assert "(clientSharePercent)" in (beat.remark or "")
        assert "%RETRY%further" not in broker.topics.configs
        assert (await client.pulls(group="invented0")).code == ResponseCode.SUCCESS


async def test_a_heartbeat_with_more_groups_than_the_share_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk() as (broker, client):
        monkeypatch.setattr(client_shares, "MAX_TOPICS", len(broker.topics.configs) + ROOM)
        before = dict(broker.topics.configs), dict(broker.groups.configs)
        said = heartbeat("c", *(consumer(f"g{number}") for number in range(ROOM // 2)))
        answer = await client.asks(RequestCode.HEART_BEAT, said.encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (broker.topics.configs, broker.groups.configs) == before


async def test_operators_create_topics_up_to_the_total_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk() as (broker, client):
        monkeypatch.setattr(client_shares, "MAX_TOPICS", len(broker.topics.configs) + 4)
        for number in range(4):
            answer = await client.asks(
                RequestCode.UPDATE_AND_CREATE_TOPIC, topic=f"{TOPIC}{number}", defaultTopic="TBW102",
                readQueueNums=1, writeQueueNums=1, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0,
                order=False,
            )  # fmt: skip
            assert answer.code == ResponseCode.SUCCESS


def test_a_share_follows_the_entries_of_others() -> None:
    table: set[str] = set()
    shares = NamedShares("things", BrokerConfig(), lambda: 100, table, lambda: len(table), counted=Limit.TOPICS)

    def add(client: str, name: str) -> bool:
        try:
            shares.check(client)
        except RequestRefusedError:
            return False
        table.add(name)
        shares.created(client, name)
        return True

    assert sum(add(f"10.0.0.1:{number}", f"a{number}") for number in range(100)) == 50
    assert sum(add(f"10.0.0.2:{number}", f"b{number}") for number in range(100)) == 25
    table -= {f"a{number}" for number in range(50)}
    assert sum(add(f"10.0.0.2:{number}", f"c{number}") for number in range(100)) == 25
    assert not add("10.0.0.2:500", "further")
    assert add("[::1]:500", "of another address")
