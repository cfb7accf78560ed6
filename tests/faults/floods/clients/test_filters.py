"""Clients that register SQL92 subscriptions without end: limits in number and bytes, in total and per address."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.broker.clients.consumer_filters import ENTRY_BYTES, ConsumerFilters
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store.config_tables import CONSUMER_FILTERS
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.client_registry_harness import GROUP, T0, TOPIC, consumer, heartbeat, sql, writer_on
from support.broker.requests import talk, talking_to
from support.limit_counts import counts

ONE, TWO = "10.0.0.1:1000", "10.0.0.2:1000"


def filters_with(clock: ManualClock | None = None, **settings: Any) -> ConsumerFilters:
    return ConsumerFilters(writer_on(MemoryDisk()), BrokerConfig(**settings), clock or ManualClock(T0))


def add(filters: ConsumerFilters, group: str, client: str, expression: str = "a = 1") -> None:
    said = [sql(TOPIC, expression)]
    filters.check_room(group, said, client)
    filters.register(group, said, client)


def fill(filters: ConsumerFilters, client: str, expression: str = "a = 1") -> int:
    """Number of filters that a client registers until it is refused, over any number of connections."""
    host, _, port = client.partition(":")
    for number in range(1000):
        try:
            add(filters, f"{host}_{number}", f"{host}:{int(port) + number}", expression)
        except RequestRefusedError:
            return number
    raise AssertionError("there is no limit")


def test_one_address_may_register_half_of_the_remaining_filters() -> None:
    filters = filters_with(max_consumer_filters=40)
    assert fill(filters, ONE) == 20
    assert fill(filters, TWO) == 10
    with pytest.raises(RequestRefusedError, match=r"at 10\.0\.0\.1 have 20 SQL92 subscriptions already"):
        add(filters, "further", ONE)


def test_one_connection_may_register_half_of_the_share_of_its_address() -> None:
    filters = filters_with(max_consumer_filters=40)
    for number in range(10):
        add(filters, f"g{number}", ONE)
    with pytest.raises(RequestRefusedError, match=r"connection 10\.0\.0\.1:1000 has 10 SQL92 subscriptions"):
        add(filters, "further", ONE)
    add(filters, "further", "10.0.0.1:2000")


@counts(Limit.SQL_SUBSCRIPTION_BYTES)
def test_the_bytes_of_all_expressions_are_limited_too() -> None:
    long = "a = '" + "x" * 600 + "'"
    filters = filters_with(max_consumer_filter_bytes=40 * (len(long) + ENTRY_BYTES))
    assert fill(filters, ONE, long) == 20
    with pytest.raises(RequestRefusedError, match=r"bytes of SQL92 subscriptions already.*clientSharePercent"):
        add(filters, "further", ONE, long)
    assert len(CONSUMER_FILTERS.encode(filters.table())) < 40 * (len(long) + ENTRY_BYTES)


@counts(Limit.SQL_SUBSCRIPTIONS)
def test_the_error_at_the_total_limit_names_its_setting() -> None:
    filters = filters_with(max_consumer_filters=2, client_share_percent=100)
    fill(filters, ONE)
    with pytest.raises(RequestRefusedError, match=r"has 2 SQL92 .* at most 2 are allowed \(maxConsumerFilters\)"):
        add(filters, "further", TWO)


def test_expired_filters_are_evicted_before_a_client_is_refused() -> None:
    clock = ManualClock(T0)
    filters = filters_with(clock, max_consumer_filters=2, client_share_percent=100)
    add(filters, "a", ONE)
    add(filters, "b", ONE)
    filters.unregister("a")
    clock.advance(24 * 3600 * 1000)
    add(filters, "c", TWO)
    assert filters.find("a", TOPIC) is None
    assert len(filters) == 2


def test_a_client_that_replaces_its_expression_uses_no_further_share() -> None:
    filters = filters_with(max_consumer_filters=4)
    for version in range(1, 20):
        said = [sql(TOPIC, f"a = {version}", version)]
        filters.check_room(GROUP, said, ONE)
        filters.register(GROUP, said, ONE)
    assert (len(filters), filters._counts.used_by(ONE)) == (1, 1)


def test_a_heartbeat_with_many_expressions_compiles_none_of_them() -> None:
    filters = filters_with()
    said = [sql(f"topic{number}", f"a = {number}") for number in range(500)]
    filters.check_room(GROUP, said, ONE)
    filters.register(GROUP, said, ONE)
    assert not any(registered.is_compiled for registered in filters._all())
    found = filters.find(GROUP, "topic7")
    assert found is not None
    assert found.compiled is not None
    assert sum(registered.is_compiled for registered in filters._all()) == 1


async def test_a_heartbeat_over_the_share_is_refused_and_a_pull_of_another_address_works() -> None:
    async with (
        talk(enablePropertyFilter=True, maxConsumerFilters=8) as (broker, client),
        talking_to(broker) as other,
    ):
        topics = [sql(f"topic{number}", "a = 1") for number in range(3)]
        answer = await client.asks(RequestCode.HEART_BEAT, heartbeat("c", consumer("g", *topics)).encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "(clientSharePercent)" in (answer.remark or "")
        assert "g" not in broker.clients.consumers
        await other.stores(properties={"a": "1"})
        await other.subscribes(sql("TopicTest", "a = 1"))
        assert (await other.pulls(sys_flag=0)).code == ResponseCode.SUCCESS
