"""Subscriptions by SQL: their versions, their death and return, and the file they are kept in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client_ends import CONFIG_DIR, GROUP, T0, TOPIC, sql, subscription, writer_on
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.filter_data import FilterData, RegisteredFilter
from orbitmq.store.config_json import CONSUMER_FILTERS, ConsumerFilterTable
from orbitmq.testing import ManualClock, MemoryDisk

DAY = 24 * 3600 * 1000
APACHES = Path(__file__).parent.parent / "data" / "config" / "extra"


def filter_data(
    disk: MemoryDisk | None = None, clock: ManualClock | None = None, most: int = 100, **settings: Any
) -> FilterData:
    disk = disk or MemoryDisk()
    return FilterData(writer_on(disk), BrokerConfig(**settings), clock or ManualClock(T0), most)


def found(filters: FilterData, group: str = GROUP, topic: str = TOPIC) -> RegisteredFilter:
    registered = filters.find(group, topic)
    assert registered is not None
    return registered


def test_an_expression_is_kept_with_its_version_its_birth_and_its_bits() -> None:
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


def test_what_is_by_tags_or_says_nothing_is_not_kept() -> None:
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


def test_another_expression_is_born_anew() -> None:
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


def test_an_expression_that_does_not_compile_is_not_kept_and_ends_the_one_before() -> None:
    filters = filter_data()
    filters.register(GROUP, [sql(TOPIC, "a > > 3", version=1)])
    assert filters.find(GROUP, TOPIC) is None
    filters.register(GROUP, [sql(TOPIC, "a > 3", version=2)])
    assert filters.find(GROUP, TOPIC) is not None
    filters.register(GROUP, [sql(TOPIC, "a > > 3", version=3)])
    assert filters.find(GROUP, TOPIC) is None
    assert len(filters) == 0


def test_what_a_group_no_longer_subscribes_is_dead_until_it_does_again() -> None:
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


async def test_the_dead_are_kept_for_a_day() -> None:
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


def test_there_is_room_for_so_many_and_for_more_when_some_are_gone() -> None:
    filters = filter_data(most=1)
    filters.register("A", [sql(TOPIC, "a = 1")])
    filters.register("B", [sql(TOPIC, "a = 1")])
    assert filters.find("B", TOPIC) is None
    filters.register("A", [sql(TOPIC, "a = 2", version=2)])
    assert found(filters, "A").data.expression == "a = 2"


# The file


async def test_what_is_persisted_is_loaded_and_dead() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    writer = writer_on(disk)
    filters = FilterData(writer, BrokerConfig(), clock)
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
    filters = FilterData(writer, BrokerConfig(), ManualClock(T0))
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
