"""Registered filters: SQL92 subscriptions of consumer groups, persisted in ``consumerFilter.json``.

They outlive their clients by a day, because a consume queue extension marks each record with the subscriptions it
matched when it was stored: a group that reconnects with the same expression still has its marks.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.clients.shares import ClientShares
from orbitmq.filter import FilterError, bloom_filter, compile_subscription, is_tag_type
from orbitmq.platform.limit_counts import Limit
from orbitmq.store.config_tables import (
    CONSUMER_FILTERS,
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterTable,
    FilterDataMapByTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.filter import CompiledFilter
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import SubscriptionData

log = logging.getLogger("orbitmq.broker")

UNKNOWN = ":0"
"""Client whose address is not known."""

ENTRY_BYTES = 400
"""Size of an entry in ``consumerFilter.json`` without its expression, for names of usual length."""

SILENT_MS = 30_000
"""After a start no client is connected and the time of their disconnect is unknown; this grace period equals the
heartbeat interval."""


@dataclasses.dataclass(slots=True)
class RegisteredFilter:
    """Filter expression of a group for a topic."""

    data: ConsumerFilterData
    mask: int
    """Bits that the bitmap of a matching record has."""
    client: str = ""
    """Remote address of the client that registered it; empty if loaded from the file."""
    is_compiled: bool = False
    _compiled: CompiledFilter | None = None

    @property
    def compiled(self) -> CompiledFilter | None:
        """The filter, compiled on first use; None if the expression does not compile.

        A heartbeat may bring thousands of expressions, and so does the file: compiling all of them at once would
        block the event loop for seconds.
        """
        if not self.is_compiled:
            self.is_compiled = True
            try:
                self._compiled = compile_subscription(self.data.expression_type, self.data.expression or "")
            except FilterError as error:
                log.warning(
                    "filter: expression of group %s for topic %s does not compile: %s",
                    *(self.data.consumer_group, self.data.topic, error),
                )
        return self._compiled

    @property
    def size(self) -> int:
        """Bytes that count towards ``maxConsumerFilterBytes``."""
        return len(self.data.expression or "") + ENTRY_BYTES

    @property
    def client_version(self) -> int:
        """Version of the subscription; a pull with a greater version came before its heartbeat."""
        return self.data.client_version


class ConsumerFilters:
    """All registered filters, by group and topic. Call ``persist`` periodically."""

    def __init__(self, writer: ConfigWriter, config: BrokerConfig, clock: Clock) -> None:
        self._writer = writer
        self._config = config
        self._clock = clock
        self._counts = ClientShares(
            "SQL92 subscriptions",
            config,
            lambda: config.max_consumer_filters,
            lambda: self._count,
            "maxConsumerFilters",
            counted=Limit.SQL_SUBSCRIPTIONS,
        )
        self._bytes = ClientShares(
            "bytes of SQL92 subscriptions",
            config,
            lambda: config.max_consumer_filter_bytes,
            lambda: self._size,
            "maxConsumerFilterBytes",
            counted=Limit.SQL_SUBSCRIPTION_BYTES,
        )
        self.bloom = bloom_filter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter)
        self._by_group: dict[str, dict[str, RegisteredFilter]] = {}
        self._count = 0
        self._size = 0
        self._dirty = False

    def __len__(self) -> int:
        return self._count

    def find(self, group: str, topic: str) -> RegisteredFilter | None:
        """The filter of a group for a topic, alive or dead. Callers respond 27 if it is None, 28 if its version is
        too old.

        An expression that does not compile is removed on the first lookup, so that its client gets 27.
        """
        registered = self._by_group.get(group, {}).get(topic)
        if registered is not None and registered.compiled is None and registered.client:
            self._remove(group, topic)
            return None
        return registered

    def of_topic(self, topic: str) -> list[RegisteredFilter]:
        """The filters of all groups for a topic."""
        return [filters[topic] for filters in self._by_group.values() if topic in filters]

    # Changes by heartbeats

    def check_room(self, group: str, subscriptions: Iterable[SubscriptionData], client: str) -> None:
        """Raise RequestRefusedError if the subscriptions of a client exceed a limit; expired filters are evicted
        first."""
        known = self._by_group.get(group, {})
        new = [
            subscription
            for subscription in subscriptions
            if not is_tag_type(subscription.expression_type)
            and subscription.sub_string
            and subscription.topic not in known
        ]
        if not new:
            return
        size = sum(len(subscription.sub_string) for subscription in new) + ENTRY_BYTES * len(new)
        if self._counts.problem(client, len(new)) is not None or self._bytes.problem(client, size) is not None:
            self._clean()
        self._counts.check(client, len(new))
        self._bytes.check(client, size)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData], client: str = UNKNOWN) -> None:
        """Register all current subscriptions of a group. Filters of topics that are missing in them are marked
        dead."""
        named = set()
        for subscription in subscriptions:
            named.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription, client)
        for topic, registered in self._by_group.get(group, {}).items():
            if topic not in named:
                self._die(registered)

    def unregister(self, group: str) -> None:
        """Mark the filters of a group dead: its last member has left."""
        for registered in self._by_group.get(group, {}).values():
            self._die(registered)

    def _register(self, group: str, subscription: SubscriptionData, client: str) -> None:
        known = self._by_group.get(group, {}).get(subscription.topic)
        if known is None:
            self._add(group, subscription, client)
            return
        data = known.data
        if subscription.sub_version < data.client_version:
            return
        is_same = (subscription.expression_type, subscription.sub_string) == (data.expression_type, data.expression)
        if is_same or subscription.sub_version == data.client_version:
            if not known.client:
                # Loaded from the file; from now on it has a client again.
                known.client = client
                self._counts.add(client)
                self._bytes.add(client, known.size)
            if data.client_version != subscription.sub_version or data.dead:
                data.client_version = subscription.sub_version
                data.dead_time = 0
                self._dirty = True
            return
        self._remove(group, subscription.topic)
        self._add(group, subscription, client)

    def _add(self, group: str, subscription: SubscriptionData, client: str) -> None:
        size = len(subscription.sub_string) + ENTRY_BYTES
        problem = self._counts.refusal(client) or self._bytes.refusal(client, size)
        if problem is not None:
            # The heartbeat passed the check; this expression replaces a shorter one. Its pulls get 27.
            log.warning(
                "filter: dropped expression of group %s for topic %s: %s", group, subscription.topic, problem
            )
            return
        positions = self.bloom.positions(group, subscription.topic)
        data = ConsumerFilterData(
            consumer_group=group,
            topic=subscription.topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type,
            born_time=self._clock.now_ms(),
            bloom_filter_data=BloomFilterData(positions, self.bloom.bit_count),
            client_version=subscription.sub_version,
        )
        self._put(RegisteredFilter(data, self.bloom.mask(positions), client))
        self._dirty = True

    def _die(self, registered: RegisteredFilter) -> None:
        if not registered.data.dead:
            # Not before its birth, which would mean that it is not dead, if the clock was set back.
            registered.data.dead_time = max(self._clock.now_ms(), registered.data.born_time)
            self._dirty = True

    # Table and file

    def load(self) -> None:
        """Load the file and mark everything in it dead, as no client is connected yet. Raises StoreError."""
        found = [
            data
            for by_topic in self._writer.load(CONSUMER_FILTERS).filter_data_by_topic.values()
            for data in by_topic.group_filter_data.values()
        ]
        if not all(map(self._has_our_bits, found)):
            # The marks on stored records have the other shape too; clients register again.
            log.info("filter: ignoring %s: it was written with other Bloom filter settings", CONSUMER_FILTERS.name)
            return
        last_seen = self._clock.now_ms() - SILENT_MS
        for data in found[: self._config.max_consumer_filters]:
            if data.dead_time == 0:
                data.dead_time = max(data.born_time, last_seen)
            assert data.bloom_filter_data is not None
            mask = self.bloom.mask(data.bloom_filter_data.bit_pos or ())
            if data.topic in self._by_group.get(data.consumer_group, {}):
                # Only an edited or damaged file names a pair twice.
                self._remove(data.consumer_group, data.topic)
            self._put(RegisteredFilter(data, mask))

    def persist(self) -> None:
        """Drop filters that expired, and write the file if anything has changed since the last call."""
        self._clean()
        if self._dirty:
            self._dirty = False
            self._writer.mark(CONSUMER_FILTERS, self.table, is_copy=True)

    def table(self) -> ConsumerFilterTable:
        """Content of the file. Entries belong to the broker; a thread may encode them while they change between
        dead and alive."""
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
        assert registered.data.topic not in filters, "a filter is removed before another takes its place"
        filters[registered.data.topic] = registered
        self._count += 1
        self._size += registered.size
        self._counts.add(registered.client)
        self._bytes.add(registered.client, registered.size)

    def _remove(self, group: str, topic: str) -> None:
        filters = self._by_group[group]
        registered = filters.pop(topic)
        if not filters:
            del self._by_group[group]
        self._count -= 1
        self._size -= registered.size
        self._counts.remove(registered.client)
        self._bytes.remove(registered.client, registered.size)
        self._dirty = True
