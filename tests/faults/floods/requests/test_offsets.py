"""Clients that commit offsets without end: a total limit, and a share for the clients of one address."""

from __future__ import annotations

from typing import Any

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.offsets.table import OffsetTable
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.client_registry_harness import T0, writer_on
from support.broker.requests import CONSUMERS, TOPIC, talk
from support.limit_counts import counts

ONE, OTHER_OF_ONE, TWO = "10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"


def table(**settings: Any) -> OffsetTable:
    return OffsetTable(writer_on(MemoryDisk()), ManualClock(T0), config=BrokerConfig(**settings))


def fill(offsets: OffsetTable, group: str, client: str) -> int:
    """Number of first offsets that a client commits until it is refused."""
    for queue_id in range(1000):
        if offsets.problem(group, TOPIC, queue_id, client) is not None:
            return queue_id
        offsets.commit(group, TOPIC, queue_id, 1, client)
    raise AssertionError("there is no limit")


@counts(Limit.CONSUMER_OFFSETS)
def test_the_clients_of_an_address_may_commit_half_of_the_remaining_offsets() -> None:
    offsets = table(max_consumer_offsets=40)
    assert fill(offsets, "a", ONE) == 10
    assert fill(offsets, "b", OTHER_OF_ONE) == 10
    assert fill(offsets, "c", "10.0.0.1:3") == 0
    assert fill(offsets, "d", TWO) == 5
    assert "10.0.0.1 have 20 consumer offsets already" in (offsets.problem("c", TOPIC, 0, ONE) or "")


def test_an_existing_offset_may_always_be_committed() -> None:
    offsets = table(max_consumer_offsets=4)
    fill(offsets, "a", ONE)
    assert offsets.problem("a", TOPIC, 0, ONE) is None
    assert offsets.commit("a", TOPIC, 0, 99, ONE)
    assert offsets.query("a", TOPIC, 0) == 99


def test_pulled_offsets_count_as_committed_ones_do() -> None:
    offsets = table(max_consumer_offsets=40)
    for queue_id in range(100):
        offsets.commit_pull("a", TOPIC, queue_id, 1, ONE)
    assert len(offsets) == 10
    assert offsets.pull_offset("a", TOPIC, 50) == -1


def test_the_broker_itself_always_commits() -> None:
    offsets = table(max_consumer_offsets=1)
    for queue_id in range(10):
        offsets.commit("own", "rmq_sys_topic", queue_id, 1)
    assert len(offsets) == 10


def test_removed_offsets_make_room() -> None:
    offsets = table(max_consumer_offsets=40)
    fill(offsets, "a", ONE)
    offsets.commit_pull("b", TOPIC, 0, 1, OTHER_OF_ONE)
    assert len(offsets) == 11
    offsets.remove_group("a")
    assert len(offsets) == 1
    offsets.remove_topic(TOPIC)
    assert len(offsets) == 0
    assert fill(offsets, "a", ONE) == 10


def test_a_clone_counts_once() -> None:
    offsets = table()
    for queue_id in range(5):
        offsets.commit("a", TOPIC, queue_id, 1, ONE)
    for _ in range(3):
        offsets.clone("a", "b")
    assert len(offsets) == 10
    offsets.remove_group("b")
    assert len(offsets) == 5


async def test_a_commit_over_the_share_is_refused_with_the_name_of_the_setting() -> None:
    async with talk(maxConsumerOffsets=4) as (_, client):
        await client.stores()
        await client.pulls()
        fields = {"consumerGroup": CONSUMERS, "topic": TOPIC, "commitOffset": 1}
        answers = [
            await client.asks(RequestCode.UPDATE_CONSUMER_OFFSET, queueId=queue_id, **fields) for queue_id in (0, 1)
        ]
        assert answers[-1].code == ResponseCode.SYSTEM_ERROR
        assert "(clientSharePercent)" in (answers[-1].remark or "")
