"""How far groups lag: per queue for one group, for all groups of the broker, and in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orbitmq.broker.offset_requests import is_subscribed
from orbitmq.broker.stats import GROUP_GET_NUMS
from orbitmq.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processing import RequestRefusedError, fields_of, handler_of
from orbitmq.store.consume_queue import FILLER_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import Clock, MessageStore

NO_TIME = -1
"""Java's time of a message that is not there."""


class ConsumeStatsRequests:
    """GET_CONSUME_STATS, GET_BROKER_CONSUME_STATS and QUERY_CONSUME_TIME_SPAN."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        offsets: OffsetTable,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._stats = stats
        self._clock = clock

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: handler_of(self.of_group),
            RequestCode.GET_BROKER_CONSUME_STATS: handler_of(self.of_all_groups),
            RequestCode.QUERY_CONSUME_TIME_SPAN: handler_of(self.time_spans),
        }

    def of_group(self, request: Command, _: Connection) -> Command:
        """What a group has consumed of the topics asked for, or of all that it has consumed anything of."""
        fields = fields_of(request)
        group = fields["consumerGroup"]
        stats = ConsumeStats()
        for topic in self._topics_asked(group, (fields["topic"] or "").strip(), fields["topicList"] or ""):
            config = self._topics.configs.get(topic)
            if config is None:
                continue
            for queue_id in range(config.read_queue_nums):
                progress = self._progress(group, topic, queue_id)
                pulled = self._offsets.pull_offset(group, topic, queue_id)
                progress.pull_offset = max(progress.consumer_offset, pulled)
                stats.offset_table[self._queue(topic, queue_id)] = progress
            stats.consume_tps += self._tps(group, topic)
        return request.response(ResponseCode.SUCCESS, body=stats.encode())

    def _topics_asked(self, group: str, topic: str, topic_list: str) -> Iterable[str]:
        listed = [name for name in topic_list.split(";") if name.strip()]
        if listed:
            return dict.fromkeys(listed)
        topics = (topic,) if topic else sorted(self._offsets.topics_of(group))
        return [name for name in topics if is_subscribed(self._clients, group, name)]

    def of_all_groups(self, request: Command, _: Connection) -> Command:
        """The same for every group that is known. How far they have pulled is left out, as RocketMQ does."""
        only_ordered = fields_of(request)["isOrder"]
        answer = ConsumeStatsList(broker_addr=self._config.broker_address)
        for group in self._groups.configs:
            found = []
            for topic in sorted(self._offsets.topics_of(group)):
                config = self._topics.configs.get(topic)
                if config is None or (only_ordered and not config.order):
                    continue
                if not is_subscribed(self._clients, group, topic):
                    continue
                table = {
                    self._queue(topic, queue_id): self._progress(group, topic, queue_id)
                    for queue_id in range(config.write_queue_nums)
                }
                found.append(ConsumeStats(table, self._tps(group, topic)))
                for progress in table.values():
                    answer.total_diff += progress.broker_offset - progress.consumer_offset
                    answer.total_inflight_diff += progress.pull_offset - progress.consumer_offset
            answer.consume_stats_list.append({group: found})
        return request.response(ResponseCode.SUCCESS, body=answer.encode())

    def time_spans(self, request: Command, _: Connection) -> Command:
        """When the first, the last and the last consumed message of each queue were stored."""
        fields = fields_of(request)
        topic = fields["topic"]
        config = self._topics.configs.get(topic)
        if config is None:
            raise RequestRefusedError(f"topic[{topic}] not exist", ResponseCode.TOPIC_NOT_EXIST)
        spans = [self._time_span(fields["group"], topic, queue_id) for queue_id in range(config.write_queue_nums)]
        return request.response(ResponseCode.SUCCESS, body=QueryConsumeTimeSpanBody(spans).encode())

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        end = self._store.max_offset(topic, queue_id)
        offset = self._offsets.query(group, topic, queue_id)
        earliest = self._store.reader.earliest_time(topic, queue_id)
        first = NO_TIME if earliest is None else earliest
        last = self._time_of(topic, queue_id, end - 1)
        consumed = self._time_of(topic, queue_id, offset - 1) if offset > 0 else first
        # A group that has consumed nothing yet waits for the first message; RocketMQ counts from 1970 then.
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
        offset = max(self._offsets.query(group, topic, queue_id), 0)
        return OffsetWrapper(
            broker_offset=self._store.max_offset(topic, queue_id),
            consumer_offset=offset,
            last_timestamp=max(self._time_of(topic, queue_id, offset - 1), 0),
        )

    def _time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at a queue offset was stored."""
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


def _local_time(timestamp: int) -> str:
    """A time as Java's tools print it, in the time zone of this machine."""
    seconds, milliseconds = divmod(timestamp, 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(seconds)) + f":{milliseconds:03d}"
