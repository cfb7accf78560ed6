"""Subscriptions by other expressions than tags: ``consumerFilter.json``, and what pulls of such groups go by.

They outlive their clients by a day, because a consume queue extension marks each record with the subscriptions it
matched when it was stored: a group that comes back with the same expression still has its marks.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.filter import FilterError, bloom_filter, compile_subscription, is_tag_type
from orbitmq.store.config_json import (
    CONSUMER_FILTERS,
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterTable,
    FilterDataMapByTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.bodies import SubscriptionData
    from orbitmq.store.clock import Clock

log = logging.getLogger("orbitmq.broker")

SILENT_MS = 30_000
"""After a start nobody is connected. How long the clients have been gone is not known: as long as a heartbeat."""

MOST_FILTERS = 100_000
"""A group may name any topic, and what it named stays for a day; one more is not taken, and its pulls hear so."""


@dataclasses.dataclass(slots=True)
class RegisteredFilter:
    """The expression of a group for a topic."""

    data: ConsumerFilterData
    compiled: CompiledFilter | None
    """None if it was read from a file that holds an expression which does not compile: nothing is filtered."""
    mask: int
    """The bits that a record's bitmap has if it matched."""

    @property
    def client_version(self) -> int:
        """The version of the subscription; a pull that names a greater one comes too early."""
        return self.data.client_version


class FilterData:
    """All such expressions, by group and topic. ``persist`` is to be called from time to time."""

    def __init__(self, writer: ConfigWriter, config: BrokerConfig, clock: Clock, most: int = MOST_FILTERS) -> None:
        self._writer = writer
        self._config = config
        self._clock = clock
        self._most = most
        self.bloom = bloom_filter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        self._by_group: dict[str, dict[str, RegisteredFilter]] = {}
        self._count = 0
        self._dirty = False
        self._said_full = False

    def __len__(self) -> int:
        return self._count

    def find(self, group: str, topic: str) -> RegisteredFilter | None:
        """What a group last said of a topic, dead or alive. None is answered with 27, too old a version with 28."""
        registered = self._by_group.get(group)
        return None if registered is None else registered.get(topic)

    def of_topic(self, topic: str) -> list[RegisteredFilter]:
        """The expressions of all groups for a topic."""
        return [filters[topic] for filters in self._by_group.values() if topic in filters]

    # What heartbeats change

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take note of all that a group subscribes now. What it no longer names is dead."""
        named = set()
        for subscription in subscriptions:
            named.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
        for topic, registered in self._by_group.get(group, {}).items():
            if topic not in named:
                self._die(registered)

    def unregister(self, group: str) -> None:
        """The last member of a group has left."""
        for registered in self._by_group.get(group, {}).values():
            self._die(registered)

    def _register(self, group: str, said: SubscriptionData) -> None:
        known = self.find(group, said.topic)
        if known is None:
            self._add(group, said)
            return
        data = known.data
        if said.sub_version < data.client_version:
            return
        is_same = (said.expression_type, said.sub_string) == (data.expression_type, data.expression)
        if is_same or said.sub_version == data.client_version:
            if data.client_version != said.sub_version or data.dead:
                data.client_version = said.sub_version
                data.dead_time = 0
                self._dirty = True
            return
        self._remove(group, said.topic)
        self._add(group, said)

    def _add(self, group: str, said: SubscriptionData) -> None:
        try:
            compiled = compile_subscription(said.expression_type, said.sub_string)
        except FilterError as error:
            # Nothing to filter by is kept, so that the client hears of it with its next pull.
            log.warning("%s cannot filter %s: %s", group, said.topic, error)
            return
        if self._count >= self._most:
            if not self._said_full:
                log.warning("no more filters are taken: there are %d already", self._count)
                self._said_full = True
            return
        positions = self.bloom.positions(group, said.topic)
        data = ConsumerFilterData(
            consumer_group=group,
            topic=said.topic,
            expression=said.sub_string,
            expression_type=said.expression_type,
            born_time=self._clock.now_ms(),
            bloom_filter_data=BloomFilterData(positions, self.bloom.bit_count),
            client_version=said.sub_version,
        )
        self._put(RegisteredFilter(data, compiled, self.bloom.mask(positions)))
        self._dirty = True

    def _die(self, registered: RegisteredFilter) -> None:
        if not registered.data.dead:
            # Not before its birth, which would be no death, should the clock have been set back.
            registered.data.dead_time = max(self._clock.now_ms(), registered.data.born_time)
            self._dirty = True

    # The table and its file

    def load(self) -> None:
        """Read the file. All clients are gone, so everything in it is dead. Raises StoreError."""
        found = [
            data
            for by_topic in self._writer.load(CONSUMER_FILTERS).filter_data_by_topic.values()
            for data in by_topic.group_filter_data.values()
        ]
        if not all(map(self._has_our_bits, found)):
            # The marks on the stored records are of the other shape too; clients say again what they want.
            log.info("%s is of a Bloom filter with other settings: it is not used", CONSUMER_FILTERS.name)
            return
        last_seen = self._clock.now_ms() - SILENT_MS
        for data in found[: self._most]:
            if data.dead_time == 0:
                data.dead_time = max(data.born_time, last_seen)
            assert data.bloom_filter_data is not None
            mask = self.bloom.mask(data.bloom_filter_data.bit_pos or ())
            self._put(RegisteredFilter(data, _compiled(data), mask))

    def persist(self) -> None:
        """Forget what has been dead for long, and have the file written if anything changed since the last time."""
        self._clean()
        if self._dirty:
            self._dirty = False
            self._writer.mark(CONSUMER_FILTERS, self.table)

    def table(self) -> ConsumerFilterTable:
        """What the file holds."""
        table: dict[str, FilterDataMapByTopic] = {}
        for registered in self._all():
            topic = registered.data.topic
            by_topic = table.setdefault(topic, FilterDataMapByTopic(topic=topic))
            by_topic.group_filter_data[registered.data.consumer_group] = registered.data
        return ConsumerFilterTable(table)

    def _clean(self) -> None:
        oldest = self._clock.now_ms() - self._config.filter_data_clean_time_span
        for data in [registered.data for registered in self._all()]:
            if data.dead and data.dead_time <= oldest:
                self._remove(data.consumer_group, data.topic)

    def _has_our_bits(self, data: ConsumerFilterData) -> bool:
        bits = data.bloom_filter_data
        return (
            bits is not None
            and bits.bit_num == self.bloom.bit_count
            and bits.bit_pos is not None
            and len(bits.bit_pos) == self.bloom.hash_count
            and all(0 <= position < bits.bit_num for position in bits.bit_pos)
        )

    def _all(self) -> Iterator[RegisteredFilter]:
        for filters in self._by_group.values():
            yield from filters.values()

    def _put(self, registered: RegisteredFilter) -> None:
        filters = self._by_group.setdefault(registered.data.consumer_group, {})
        self._count += registered.data.topic not in filters
        filters[registered.data.topic] = registered

    def _remove(self, group: str, topic: str) -> None:
        filters = self._by_group[group]
        del filters[topic]
        if not filters:
            del self._by_group[group]
        self._count -= 1
        self._dirty = True
        self._said_full = False


def _compiled(data: ConsumerFilterData) -> CompiledFilter | None:
    try:
        return compile_subscription(data.expression_type, data.expression or "")
    except FilterError as error:
        log.error("%s cannot filter %s: %s", data.consumer_group, data.topic, error)
        return None
