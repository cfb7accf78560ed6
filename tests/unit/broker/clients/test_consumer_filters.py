"""Registered filters: versions, death and return, and their file."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from orbitmq.broker.clients.consumer_filters import ConsumerFilters, RegisteredFilter
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.store.config_tables import CONSUMER_FILTERS, ConsumerFilterTable
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.client_registry_harness import CONFIG_DIR, GROUP, T0, TOPIC, sql, subscription, writer_on
from support.paths import DATA

DAY = 24 * 3600 * 1000
APACHES = DATA / "config" / "extra"


def filter_data(
    disk: MemoryDisk | None = None, clock: ManualClock | None = None, **settings: Any
) -> ConsumerFilters:
    disk = disk or MemoryDisk()
    return ConsumerFilters(writer_on(disk), BrokerConfig(**settings), clock or ManualClock(T0))


def found(filters: ConsumerFilters, group: str = GROUP, topic: str = TOPIC) -> RegisteredFilter:
    registered = filters.find(group, topic)
    assert registered is not None
    return registered


def test_an_expression_is_stored_with_its_version_birth_time_and_bits() -> None:
    filters = filter_data()
    filters.register("g_sql", [sql("TopicSql", "a > 5 AND b = 'x'", version=7), subscription("%RETRY%g_sql")])
    registered = found(filters, "g_sql", "TopicSql")
    data = registered.data
    assert (data.client_version, data.born_time, data.dead_time, data.dead) == (7, T0, 0, False)
    assert data.bloom_filter_data is not None
    assert data.bloom_filter_data.bit_num == 112
    assert data.bloom_filter_data.bit_pos == (55, 110, 53)
    assert registered.mask == 1 << 55 | 1 << 110 | 1 << 53
    assert registered.compiled is not None
    assert registered.compiled.matches_properties(b"a\x016\x02b\x01x\x02")
    assert len(filters) == 1


def test_tag_and_empty_subscriptions_are_not_stored() -> None:
    filters = filter_data()
    filters.register(GROUP, [subscription("a", "x"), sql("b", ""), subscription("c", "x", type_="")])
    assert len(filters) == 0


def test_a_greater_version_of_the_same_expression_keeps_its_birth() -> None:
    clock = ManualClock(T0)
    filters = filter_data(clock=clock)
    filters.register(GROUP, [sql(TOPIC, "a = 1", version=1)])
    clock.advance(5)
    filters.register(GROUP, [sql(TOPIC, "a = 1", version=2)])
    assert (found(filters).client_version, found(filters).data.born_time) == (2, T0)


def test_another_expression_gets_a_new_birth_time() -> None:
    clock = ManualClock(T0)
    filters = filter_data(clock=clock)
    filters.register(GROUP, [sql(TOPIC, "a = 1", version=1)])
    clock.advance(5)
    filters.register(GROUP, [sql(TOPIC, "a = 2", version=2)])
    assert (found(filters).data.expression, found(filters).data.born_time) == ("a = 2", T0 + 5)
    assert len(filters) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_version_that_is_not_greater_changes_no_expression(version: int) -> None:
    filters = filter_data()
    filters.register(GROUP, [sql(TOPIC, "a = 1", version=2)])
    filters.register(GROUP, [sql(TOPIC, "a = 2", version=version)])
    assert (found(filters).data.expression, found(filters).client_version) == ("a = 1", 2)


def test_an_expression_that_does_not_compile_removes_the_previous_one() -> None:
    filters = filter_data()
    filters.register(GROUP, [sql(TOPIC, "a > > 3", version=1)])
    assert filters.find(GROUP, TOPIC) is None
    filters.register(GROUP, [sql(TOPIC, "a > 3", version=2)])
    assert filters.find(GROUP, TOPIC) is not None
    filters.register(GROUP, [sql(TOPIC, "a > > 3", version=3)])
    assert filters.find(GROUP, TOPIC) is None
    assert len(filters) == 0


def test_a_filter_is_dead_until_its_topic_is_subscribed_again() -> None:
    clock = ManualClock(T0)
    filters = filter_data(clock=clock)
    filters.register(GROUP, [sql("a", "x = 1"), sql("b", "x = 1")])
    clock.advance(5)
    filters.register(GROUP, [sql("b", "x = 1")])
    assert (found(filters, GROUP, "a").data.dead_time, found(filters, GROUP, "b").data.dead) == (T0 + 5, False)
    filters.register(GROUP, [sql("a", "x = 1"), sql("b", "x = 1")])
    assert not found(filters, GROUP, "a").data.dead


def test_a_group_that_left_and_comes_back_with_an_older_version_stays_dead() -> None:
    filters = filter_data()
    filters.register(GROUP, [sql(TOPIC, "a = 1", version=2)])
    filters.unregister(GROUP)
    filters.unregister("nobody")
    assert found(filters).data.dead
    filters.register(GROUP, [sql(TOPIC, "a = 1", version=1)])
    assert found(filters).data.dead
    filters.register(GROUP, [sql(TOPIC, "a = 1", version=2)])
    assert not found(filters).data.dead


async def test_dead_filters_are_removed_after_a_day() -> None:
    clock = ManualClock(T0)
    filters = filter_data(clock=clock)
    filters.register(GROUP, [sql(TOPIC, "a = 1")])
    filters.register("other", [sql(TOPIC, "a = 1")])
    filters.unregister(GROUP)
    clock.advance(DAY - 1)
    filters.persist()
    assert len(filters) == 2
    clock.advance(1)
    filters.persist()
    assert filters.find(GROUP, TOPIC) is None
    assert [registered.data.consumer_group for registered in filters.of_topic(TOPIC)] == ["other"]


def test_the_number_of_filters_is_limited_and_removed_ones_make_room() -> None:
    filters = filter_data(max_consumer_filters=1)
    filters.register("A", [sql(TOPIC, "a = 1")])
    filters.register("B", [sql(TOPIC, "a = 1")])
    assert filters.find("B", TOPIC) is None
    filters.register("A", [sql(TOPIC, "a = 2", version=2)])
    assert found(filters, "A").data.expression == "a = 2"


# Persistence


async def test_loaded_filters_are_dead() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    writer = writer_on(disk)
    filters = ConsumerFilters(writer, BrokerConfig(), clock)
    filters.register(GROUP, [sql(TOPIC, "a = 1", version=4)])
    filters.persist()
    await writer.saved()
    clock.advance(100_000)
    later = filter_data(disk, clock)
    later.load()
    registered = found(later)
    assert registered.data.dead_time == T0 + 100_000 - 30_000
    assert (registered.data.born_time, registered.client_version) == (T0, 4)
    assert registered.mask == found(filters).mask
    assert registered.compiled is not None
    later.register(GROUP, [sql(TOPIC, "a = 1", version=5)])
    assert (found(later).data.born_time, found(later).data.dead) == (T0, False)


async def test_nothing_is_written_when_nothing_has_changed() -> None:
    disk = MemoryDisk()
    writer = writer_on(disk)
    filters = ConsumerFilters(writer, BrokerConfig(), ManualClock(T0))
    filters.register(GROUP, [sql(TOPIC, "a = 1")])
    filters.persist()
    await writer.saved()
    disk.remove(f"{CONFIG_DIR}/{CONSUMER_FILTERS.name}")
    filters.register(GROUP, [sql(TOPIC, "a = 1")])
    filters.persist()
    await writer.saved()
    assert disk.stat(f"{CONFIG_DIR}/{CONSUMER_FILTERS.name}") is None


def written(table: ConsumerFilterTable | bytes) -> MemoryDisk:
    disk = MemoryDisk()
    data = table if isinstance(table, bytes) else CONSUMER_FILTERS.encode(table)
    disk.write(f"{CONFIG_DIR}/{CONSUMER_FILTERS.name}", data)
    return disk


def test_the_file_of_apaches_broker_is_read_and_written_back_as_it_is() -> None:
    data = (APACHES / CONSUMER_FILTERS.name).read_bytes()
    filters = filter_data(written(data))
    filters.load()
    assert len(filters) == 2
    assert found(filters, "g_sql2", "TopicSql").client_version == 1794775040155
    assert CONSUMER_FILTERS.encode(filters.table()) == data


def test_a_file_of_another_bloom_filter_is_not_used() -> None:
    filters = filter_data()
    filters.register(GROUP, [sql(TOPIC, "a = 1")])
    other = filter_data(written(filters.table()), expect_consumer_num_use_filter=64)
    other.load()
    assert len(other) == 0


def test_an_expression_in_the_file_that_does_not_compile_filters_nothing() -> None:
    filters = filter_data()
    filters.register(GROUP, [sql(TOPIC, "a = 1")])
    found(filters).data.expression = "a > > 3"
    later = filter_data(written(filters.table()))
    later.load()
    assert found(later).compiled is None


def test_a_file_that_names_a_group_and_topic_twice_loads_the_last_entry() -> None:
    filters = filter_data()
    filters.register(GROUP, [sql(TOPIC, "a = 1"), sql("other", "a = 2")])
    found(filters, topic="other").data.topic = TOPIC
    table = filters.table()
    table.filter_data_by_topic["other"] = dataclasses.replace(table.filter_data_by_topic[TOPIC], topic="other")
    later = filter_data(written(table))
    later.load()
    assert len(later) == 1
