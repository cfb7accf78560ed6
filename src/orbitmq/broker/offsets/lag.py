"""Consumer lag: per queue of a group, of all groups of the broker, and in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orbitmq.broker.offsets.processor import is_subscribed
from orbitmq.broker.offsets.progress_text import ProgressText
from orbitmq.broker.stats.counters import GROUP_GET_NUMS
from orbitmq.broker.time_slices import encoded, in_slices
from orbitmq.protocol.bodies import (
    ConsumeStats,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

MAX_ENTRIES = 100_000
"""Queues in one response: more of them exceed the 16 MiB that clients accept."""

NO_TIME = -1
"""Java's time stamp of a missing message."""


class ConsumeStatsRequests:
    """GET_CONSUME_STATS, GET_BROKER_CONSUME_STATS and QUERY_CONSUME_TIME_SPAN."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        clients: Clients,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._stats = runtime.stats
        self._clock = runtime.clock
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self._clients = clients

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: handler_of(self.of_group),
            RequestCode.GET_BROKER_CONSUME_STATS: handler_of(self.of_all_groups),
            RequestCode.QUERY_CONSUME_TIME_SPAN: handler_of(self.time_spans),
        }

    async def of_group(self, request: Command, _: Connection) -> Command:
        """Progress and lag of a group in the requested topics, or in all with offsets of the group."""
        fields = fields_of(request)
        group = fields["consumerGroup"]
        stats = ConsumeStats()
        requested = self._requested_topics(group, (fields["topic"] or "").strip(), fields["topicList"] or "")
        async for topic in in_slices(requested):
            config = self._topics.configs.get(topic)
            if config is None:
                continue
            _check_entries(len(stats.offset_table) + config.read_queue_nums)
            async for queue_id in in_slices(range(config.read_queue_nums)):
                progress = self._progress(group, topic, queue_id)
                pulled = self._offsets.pull_offset(group, topic, queue_id)
                progress.pull_offset = max(progress.consumer_offset, pulled)
                stats.offset_table[self._queue(topic, queue_id)] = progress
            stats.consume_tps += self._tps(group, topic)
        return request.response(ResponseCode.SUCCESS, body=await encoded(stats, len(stats.offset_table)))

    def _requested_topics(self, group: str, topic: str, topic_list: str) -> Iterable[str]:
        listed = [name for name in topic_list.split(";") if name.strip()]
        if listed:
            return dict.fromkeys(listed)
        topics = (topic,) if topic else sorted(self._offsets.topics_of(group))
        return [name for name in topics if is_subscribed(self._clients, group, name)]

    async def of_all_groups(self, request: Command, _: Connection) -> Command:
        """The same for every known group, without pull offsets, as in RocketMQ."""
        only_ordered = fields_of(request)["isOrder"]
        text = ProgressText(self._config.broker_name, self._config.broker_address)
        entries = 0
        async for group in in_slices(list(self._groups.configs)):
            text.begin_group()
            async for topic in in_slices(sorted(self._offsets.topics_of(group))):
                config = self._topics.configs.get(topic)
                if config is None or (only_ordered and not config.order):
                    continue
                if not is_subscribed(self._clients, group, topic):
                    continue
                entries += config.write_queue_nums
                _check_entries(entries)
                text.begin_topic(topic)
                async for queue_id in in_slices(range(config.write_queue_nums)):
                    text.add_queue(queue_id, *self._offsets_of(group, topic, queue_id))
                text.end_topic(self._tps(group, topic))
            text.end_group(group)
        return request.response(ResponseCode.SUCCESS, body=text.whole())

    async def time_spans(self, request: Command, _: Connection) -> Command:
        """Store times of the first, the last and the last consumed message of each queue."""
        fields = fields_of(request)
        topic = fields["topic"]
        config = self._topics.configs.get(topic)
        if config is None:
            raise RequestRefusedError(f"topic[{topic}] not exist", ResponseCode.TOPIC_NOT_EXIST)
        spans = [
            self._time_span(fields["group"], topic, queue_id)
            async for queue_id in in_slices(range(config.write_queue_nums))
        ]
        body = await encoded(QueryConsumeTimeSpanBody(spans), len(spans))
        return request.response(ResponseCode.SUCCESS, body=body)

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        end = self._store.max_offset(topic, queue_id)
        offset = self._offsets.query(group, topic, queue_id)
        earliest = self._store.reader.earliest_time(topic, queue_id)
        first = NO_TIME if earliest is None else earliest
        last = self._time_of(topic, queue_id, end - 1)
        consumed = self._time_of(topic, queue_id, offset - 1) if offset > 0 else first
        # A group without an offset waits for the first message; RocketMQ counts from 1970 in this case.
        waiting = max(offset, self._store.min_offset(topic, queue_id))
        delay = self._clock.now_ms() - self._time_of(topic, queue_id, waiting) if waiting < end else 0
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first,
            max_time_stamp=last,
            consume_time_stamp=consumed,
            delay_time=delay,
            min_time_stamp_str=_local_time(first),
            max_time_stamp_str=_local_time(last),
            consume_time_stamp_str=_local_time(consumed),
        )

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        end, offset, time_ms = self._offsets_of(group, topic, queue_id)
        return OffsetWrapper(broker_offset=end, consumer_offset=offset, last_timestamp=time_ms)

    def _offsets_of(self, group: str, topic: str, queue_id: int) -> tuple[int, int, int]:
        """The end of a queue, the committed offset of a group, and the store time of what it consumed last."""
        offset = max(self._offsets.query(group, topic, queue_id), 0)
        time_ms = max(self._time_of(topic, queue_id, offset - 1), 0)
        return self._store.max_offset(topic, queue_id), offset, time_ms

    def _time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of the message at a queue offset."""
        if offset < 0:
            return NO_TIME
        queue = self._store.queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return NO_TIME
        if isinstance(queue, ConsumeQueue):
            unit = queue.unit(offset)
            stored = None if unit is None or unit[1] == FILLER_SIZE else self._store.reader.store_timestamp(unit[0])
        else:
            batch = queue.unit(offset)
            stored = None if batch is None else batch.store_timestamp
        return NO_TIME if stored is None else stored

    def _tps(self, group: str, topic: str) -> float:
        return self._stats.minute_tps(GROUP_GET_NUMS, f"{topic}@{group}")

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._config.broker_name, queue_id)


def _check_entries(count: int) -> None:
    if count > MAX_ENTRIES:
        raise RequestRefusedError(
            f"the answer would list more than {MAX_ENTRIES} queues: ask for one group and one topic at a time"
        )


def _local_time(timestamp: int) -> str:
    """A time as Java's tools print it, in the time zone of this machine."""
    seconds, milliseconds = divmod(timestamp, 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(seconds)) + f":{milliseconds:03d}"
