"""The plan of an audit: the ranges of brokers, archive and stores, read before Spark starts.

The bounds of queues are requested in an order: traces first, half messages next, topics last. A message is stored
before its trace, so every traced message is within the bounds of its topic.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from orbitmq.client.consumer.start_offset import QUEUE_SECONDS
from orbitmq.client.errors import BrokerError, NoRouteError
from orbitmq.client.instance.routes import MASTER
from orbitmq.client.query.queue_offsets import together
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.bodies import GroupList, MessageQueue, TopicConfigAndQueueMapping, TopicList
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.record import MIN_RECORD_SIZE
from orbitmq.protocol.names import (
    DLQ_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
    is_system_group,
)
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.archive.directory import Archive
from orbitmq.spark.pipelines.progress import Summary
from orbitmq.spark.topic_source.options import SourceOptions
from orbitmq.spark.topic_source.subscribed_queues import TopicQueues
from orbitmq.store.errors import StoreError
from orbitmq.store.tools.detect_layout import detect_log

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.spark.pipelines.audit.request import AuditRequest

Spans = dict[MessageQueue, tuple[int, int]]
"""By queue, the first offset that is read and the one after the last."""

RETRY_SECONDS = 60.0
_BLOCK_SIZE = 512
"""The unit of ``st_blocks``."""
DEFERRED_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Where messages are that are not due yet."""


@dataclasses.dataclass(slots=True)
class AuditPlan:
    """The ranges to read, as of the time of planning."""

    request: AuditRequest
    messages: Spans = dataclasses.field(default_factory=dict)
    """Of the topics that are audited."""
    begins: dict[MessageQueue, int] = dataclasses.field(default_factory=dict)
    """Where these queues begin: before it is what retention took."""
    ends: dict[MessageQueue, int] = dataclasses.field(default_factory=dict)
    """Their ends, regardless of the audited time."""
    own: dict[str, Spans] = dataclasses.field(default_factory=dict)
    """Of RocketMQ's own topics and those of dead letters, by topic, those that there are."""
    archived: Spans = dataclasses.field(default_factory=dict)
    groups: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """By topic."""
    compacted: frozenset[str] = frozenset()
    """Topics of which only the last message of each key is kept: their queues have holes."""

    @property
    def topics(self) -> list[str]:
        """The topics that are known before stores are read."""
        found = {queue.topic for queue in (*self.messages, *self.archived)}
        return sorted(set(self.request.topics) or found)

    @property
    def messages_at_most(self) -> int:
        """An upper bound of the messages that are audited; of stores by the size of their log files."""
        spans = (*self.messages.values(), *self.archived.values())
        return sum(end - start for start, end in spans) + sum(map(_store_records, self.request.stores))

    def cluster(self) -> Cluster:
        return Cluster.of(self.request.nameserver, retry_seconds=RETRY_SECONDS)

    def begins_now(self) -> dict[MessageQueue, int]:
        """The current first offsets: retention continues while an audit reads."""
        if not self.messages:
            return {}
        topics = sorted({queue.topic for queue in self.messages})
        return {queue: ends.min for queue, ends in _bounds(self.request.nameserver or "", topics).items()}

    def summary(self) -> Summary:
        """The summary of a dry run."""
        request = self.request
        facts: dict[str, object] = {
            "topics": self.topics,
            "queues": len(self.messages),
            "messages": sum(end - start for start, end in self.messages.values()),
            "archived": sum(end - start for start, end in self.archived.values()) if request.archive else None,
            "stores": list(request.stores),
            "trace_messages": _size(self.own.get(request.trace_topic, {})),
            "half_messages": _size(self.own.get(TRANSACTION_HALF_TOPIC, {})),
            "dead_letters": sum(_size(spans) for topic, spans in self.own.items() if topic.startswith(DLQ_PREFIX)),
            "groups": sorted({group for groups in self.groups.values() for group in groups}),
        }
        return Summary("audit: would read", {name: value for name, value in facts.items() if value is not None})


def _store_records(path: str) -> int:
    """An upper bound of the records of a store, by the size of its log files."""
    folder = os.path.join(os.path.abspath(path), "commitlog")
    files = os.scandir(folder if os.path.isdir(folder) else path)
    return sum(entry.stat().st_blocks for entry in files) * _BLOCK_SIZE // MIN_RECORD_SIZE


def make_plan(request: AuditRequest) -> AuditPlan:
    """Ask brokers, archive and stores what there is. Raises OrbitMQError and OptionError."""
    plan = AuditPlan(request)
    for store in request.stores:
        _check_store(store)
    if request.archive is not None:
        plan.archived = {
            queue: ends
            for queue, ends in Archive.existing(request.archive).ranges().items()
            if not request.topics or queue.topic in request.topics
        }
    if request.nameserver:
        _ask_cluster(plan, request.nameserver)
    if not request.stores:
        known = {queue.topic for queue in (*plan.messages, *plan.archived)}
        for topic in request.topics:
            if topic not in known:
                raise OptionError(
                    f"the topic {topic!r} does not exist: no broker and no archive that is read has it"
                )
    return plan


def _check_store(path: str) -> None:
    try:
        detect_log(LocalDisk(), os.path.abspath(path))
    except (StoreError, ConfigError, OSError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from None


def _ask_cluster(plan: AuditPlan, nameserver: str) -> None:
    request = plan.request
    cluster = plan.cluster()
    own = [request.trace_topic, TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC, TRANSACTION_GIVEN_UP_TOPIC]
    for topic in own:
        _add_own(plan, nameserver, topic)
    everything = cluster.run(_all_topics(cluster))
    for topic in everything:
        if topic.startswith(DLQ_PREFIX):
            _add_own(plan, nameserver, topic)
    topics = list(request.topics) or [topic for topic in cluster.topics() if topic != request.trace_topic]
    bounds = _bounds(nameserver, topics)
    plan.begins = {queue: ends.min for queue, ends in bounds.items()}
    plan.ends = {queue: ends.max for queue, ends in bounds.items()}
    plan.messages = _within(cluster, bounds, request.since_ms, request.until_ms)
    for topic in DEFERRED_TOPICS:
        # What has become due meanwhile is still here.
        _add_own(plan, nameserver, topic)
    brokers = {topic: sorted({q.broker_name for q in bounds if q.topic == topic}) for topic in topics}
    plan.compacted = frozenset(cluster.run(_compacted(cluster, brokers)))
    if request.groups:
        plan.groups = {topic: list(request.groups) for topic in topics}
    else:
        plan.groups = cluster.run(_groups(cluster, brokers))


def _add_own(plan: AuditPlan, nameserver: str, topic: str) -> None:
    request = plan.request
    since = request.since_ms if topic != TRANSACTION_OP_TOPIC else None
    if bounds := _bounds(nameserver, [topic]):
        plan.own[topic] = _within(plan.cluster(), bounds, since, None)


def _bounds(nameserver: str, topics: Iterable[str]) -> dict[MessageQueue, Bounds]:
    """The bounds of the existing topics."""
    names = ",".join(topics)
    if not names:
        return {}
    options = SourceOptions.of({"nameserver": nameserver, "subscribe": names, "retrySeconds": f"{RETRY_SECONDS:g}"})
    return TopicQueues(options).bounds()


def _within(
    cluster: Cluster, bounds: dict[MessageQueue, Bounds], since_ms: int | None, until_ms: int | None
) -> Spans:
    """The offsets of messages of a time."""
    starts = {queue: ends.min for queue, ends in bounds.items()}
    ends = {queue: found.max for queue, found in bounds.items()}
    if since_ms is not None:
        starts |= cluster.offsets_at(bounds, since_ms)
    if until_ms is not None:
        ends |= cluster.offsets_at(bounds, until_ms)
    return {
        queue: (min(max(starts[queue], found.min), found.max), max(min(ends[queue], found.max), found.min))
        for queue, found in bounds.items()
        if max(starts[queue], found.min) <= min(ends[queue], found.max)
    }


async def _all_topics(cluster: Cluster) -> list[str]:
    answer = await cluster.instance.ask_name_server(Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    if answer.code != ResponseCode.SUCCESS or answer.body is None:
        raise BrokerError(answer.code, answer.remark, "the name server")
    return sorted(set(TopicList.decode(answer.body).topic_list))


async def _groups(cluster: Cluster, brokers: dict[str, list[str]]) -> dict[str, list[str]]:
    """The consumer groups of the topics, without RocketMQ's own."""

    async def ask(topic: str, broker: str) -> tuple[str, list[str]]:
        answer = await _of_topic(cluster, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic, broker)
        return topic, GroupList.decode(answer or b"{}").group_list

    found: dict[str, set[str]] = {}
    for topic, groups in await together(ask(topic, name) for topic, names in brokers.items() for name in names):
        found.setdefault(topic, set()).update(group for group in groups if not is_system_group(group))
    return {topic: sorted(groups) for topic, groups in found.items() if groups}


async def _compacted(cluster: Cluster, brokers: dict[str, list[str]]) -> list[str]:
    async def ask(topic: str, broker: str) -> str | None:
        answer = await _of_topic(cluster, RequestCode.GET_TOPIC_CONFIG, topic, broker)
        if answer is None:
            return None
        policy = TopicConfigAndQueueMapping.decode(answer).attributes.get("cleanup.policy")
        return topic if policy == "COMPACTION" else None

    answers = await together(ask(topic, name) for topic, names in brokers.items() for name in names)
    return [topic for topic in answers if topic is not None]


async def _of_topic(cluster: Cluster, code: RequestCode, topic: str, broker: str) -> bytes | None:
    """A broker's response about a topic; None from one that does not know the request, as those before 5.0."""
    address = cluster.instance.address(topic, broker, MASTER, only_this=False)
    if address is None:
        raise NoRouteError(topic, f"the broker {broker} is not known")
    try:
        answer = await cluster.instance.call(address, Command(code, ext_fields={"topic": topic}), QUEUE_SECONDS)
    except BrokerError as error:
        if error.code in {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.TOPIC_NOT_EXIST}:
            return None
        raise
    return answer.body


def _size(spans: Spans) -> int:
    return sum(end - start for start, end in spans.values())
