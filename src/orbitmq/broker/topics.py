"""The topics of a broker: those it begins with, those somebody created, and those that a send brings about.

``configs`` is read for every message, so it is one plain dict that lives as long as the table, and a topic that
changes is replaced by another object. Every change is numbered by the data version, marked to be written to
``topics.json`` and told to ``on_change``, which makes it known to name servers.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from orbitmq.broker.attributes import BATCH_QUEUES, QUEUE_TYPE
from orbitmq.broker.table_versions import first_version, next_version
from orbitmq.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from orbitmq.protocol.flags import PERM_INHERIT, PERM_READ, PERM_WRITE
from orbitmq.protocol.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    MAX_RETRY_OR_DLQ_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    OFFSET_MOVED_TOPIC,
    REPLY_TOPIC_POSTFIX,
    RETRY_PREFIX,
    REVIVE_TOPIC_PREFIX,
    ROCKSDB_TRANSACTION_HALF_TOPIC,
    ROCKSDB_TRANSACTION_OP_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYNC_BROKER_MEMBER_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from orbitmq.remoting.processing import RequestRefusedError
from orbitmq.store.config_json import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.store import Clock

MAX_TOPICS = 50_000
"""RocketMQ has no limit, so a client that invents names could fill the memory of the broker and of every name
server, and make each change rewrite a file without end. With this one ``topics.json`` stays below some 20 MB, and
the whole table fits the one frame in which an old client asks for it. Groups take a topic each for their retries.
Of a store that has more already they all are there; only further ones are refused."""

MAX_QUEUES = 65_535
"""Of a topic. RocketMQ's own largest has 1024; answers that list every queue must stay answers."""

SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024

_LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def name_complaint(kind: str, name: str) -> str | None:
    """What is wrong with the name of a topic or group whatever its length, in RocketMQ's words."""
    if not name or name.isspace():
        return f"The specified {kind} is blank."
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"The specified {kind}: {name}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def topic_name_problem(topic: str) -> str | None:
    """What is wrong with the name of a topic, in RocketMQ's words; None if nothing is."""
    complaint = name_complaint("topic", topic)
    if complaint is not None:
        return complaint
    if len(topic) <= MAX_TOPIC_LENGTH:
        return None
    if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return f"The specified topic: {topic}, is longer than topic max length: {MAX_TOPIC_LENGTH}"
    if len(topic) <= MAX_RETRY_OR_DLQ_TOPIC_LENGTH:
        return None
    return (
        f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic max length: "
        f"{MAX_RETRY_OR_DLQ_TOPIC_LENGTH}"
    )


class TopicTable:
    """All topics of a broker. ``configs`` stays the same dict for ever; do not write to it."""

    def __init__(
        self, writer: ConfigWriter, config: BrokerConfig, clock: Clock, *, timer_wheel: bool = True
    ) -> None:
        """``timer_wheel``: whether there is a topic for timers, as the store's ``timerWheelEnable`` says."""
        self._writer = writer
        self._config = config
        self._clock = clock
        self.configs: dict[str, TopicConfig] = {}
        self.data_version = first_version(clock)
        self.on_change: Callable[[Sequence[str]], None] | None = None
        """Called with the names of topics that are new or changed. Name servers do not hear of deleted ones."""
        own = _topics_of_a_new_broker(config, timer_wheel=timer_wheel)
        self.configs.update((topic.topic_name, topic) for topic in own)
        self.system_topics = SYSTEM_TOPICS | self.configs.keys()
        """Those with RocketMQ's own names, and those that carry the name of this cluster or broker."""

    def load(self) -> None:
        """Read ``topics.json``; what stands there wins over what a broker begins with. Raises StoreError."""
        table = self._writer.load(TOPICS)
        self.configs.update(table.topic_config_table)
        if table.topic_config_table:
            self.data_version = table.data_version

    def persist(self) -> None:
        """Write the table, also if nothing changed: so that a new broker leaves one behind when it stops."""
        self._writer.mark(TOPICS, self._wrapped)

    def get(self, topic: str) -> TopicConfig | None:
        return self.configs.get(topic)

    def is_system_topic(self, topic: str) -> bool:
        return topic in self.system_topics or topic.startswith(SYSTEM_TOPIC_PREFIX)

    def batch_topics(self) -> list[str]:
        """Those whose queues are numbered by batches, which the store has to know before it opens."""
        return [name for name, config in self.configs.items() if config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES]

    # Topics that come about by what clients do

    def create_for_send(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int
    ) -> TopicConfig | None:
        """The topic of a message, made after the model of ``default_topic`` if it is new and may be.

        None if it may not: the model is unknown or does not bequeath. Raises RequestRefusedError if there are too
        many topics. The name was checked before.
        """
        present = self.configs.get(topic)
        if present is not None:
            return present
        model = self.configs.get(default_topic)
        if model is None or not model.perm & PERM_INHERIT:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            # It may stand in the file from a time when it was allowed.
            return None
        queues = max(0, min(queue_count, model.write_queue_nums))
        return self._create(
            TopicConfig(
                topic,
                queues,
                queues,
                model.perm & ~PERM_INHERIT,
                topic_filter_type=model.topic_filter_type,
                topic_sys_flag=sys_flag,
            )
        )

    def create_for_send_back(
        self, topic: str, queue_count: int, perm: int, sys_flag: int = 0, *, order: bool | None = None
    ) -> TopicConfig:
        """A retry or dead letter topic, made if it is new. Raises RequestRefusedError if there are too many topics.

        ``order``, where given, is what the topic has to be from now on.
        """
        present = self.configs.get(topic)
        if present is None:
            return self._create(
                TopicConfig(topic, queue_count, queue_count, perm, order=bool(order), topic_sys_flag=sys_flag)
            )
        if order is not None and order != present.order:
            present = dataclasses.replace(present, order=order)
            self.update(present)
        return present

    def _create(self, topic: TopicConfig) -> TopicConfig:
        self.check_room(1)
        self.update(topic)
        return topic

    # Topics as somebody wants them

    def check_room(self, count: int) -> None:
        """Raises RequestRefusedError if there cannot be so many topics more."""
        if count > 0 and len(self.configs) + count > MAX_TOPICS:
            raise RequestRefusedError(
                f"this broker has {len(self.configs)} topics, and {MAX_TOPICS} at most are allowed: delete some"
            )

    def update(self, *configs: TopicConfig) -> None:
        """Put topics in place of what was there under their names; what belongs together has one call."""
        for config in configs:
            self.configs[config.topic_name] = config
            self._next_version()
        self.persist()
        if self.on_change is not None:
            self.on_change([config.topic_name for config in configs])

    def delete(self, topic: str) -> bool:
        """Forget a topic; False if there is none."""
        if self.configs.pop(topic, None) is None:
            return False
        self.bump()
        return True

    def set_ordered(self, topics: Iterable[str]) -> None:
        """Mark topics as ordered that a name server says are; of others it says nothing.

        Not told to ``on_change``, as in RocketMQ: whether a topic is ordered is no part of its route.
        """
        ordered: Mapping[str, TopicConfig] = {
            name: dataclasses.replace(config, order=True)
            for name in topics
            if (config := self.configs.get(name)) is not None and not config.order
        }
        if ordered:
            self.configs.update(ordered)
            self.bump()

    def bump(self) -> None:
        """Number a change that is not of one topic, so that name servers take the next registration as new."""
        self._next_version()
        self.persist()

    def _next_version(self) -> None:
        self.data_version = next_version(self.data_version, self._clock)

    def _wrapped(self) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(self.configs, self.data_version)


def _topics_of_a_new_broker(config: BrokerConfig, *, timer_wheel: bool) -> list[TopicConfig]:
    """What RocketMQ 5.5 begins with. Some carry the name of the cluster or the broker, to be sent to by it."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    everything = PERM_READ | PERM_WRITE | PERM_INHERIT
    topics = [
        _topic(SELF_TEST_TOPIC),
        _topic(BENCHMARK_TOPIC, BENCHMARK_QUEUES),
        _topic(cluster, 16, everything if config.cluster_topic_enable else PERM_INHERIT),
        _topic(broker, 1, everything if config.broker_topic_enable else PERM_INHERIT),
        _topic(OFFSET_MOVED_TOPIC),
        _topic(SCHEDULE_TOPIC, SCHEDULE_QUEUES),
        _topic(cluster + REPLY_TOPIC_POSTFIX),
        _topic(REVIVE_TOPIC_PREFIX + cluster, config.revive_queue_num),
        _topic(SYNC_BROKER_MEMBER_PREFIX + broker, 1, PERM_INHERIT),
        _topic(TRANSACTION_HALF_TOPIC),
        _topic(TRANSACTION_OP_TOPIC),
        _topic(ROCKSDB_TRANSACTION_HALF_TOPIC),
        _topic(ROCKSDB_TRANSACTION_OP_TOPIC),
    ]
    if config.auto_create_topic_enable:
        topics.append(_topic(AUTO_CREATE_TOPIC, config.default_topic_queue_nums, everything))
    if config.trace_topic_enable:
        topics.append(_topic(config.msg_trace_topic_name))
    if timer_wheel:
        topics.append(_topic(TIMER_TOPIC))
    return topics


def _topic(name: str, queues: int = 1, perm: int = PERM_READ | PERM_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)
