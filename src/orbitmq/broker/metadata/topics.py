"""Topic table: system topics, created topics and auto-created topics of a broker.

``configs`` is read for every message, so it is one plain dict for the lifetime of the table, and a changed topic is
replaced by another object. Every change bumps the data version, is written to ``topics.json`` and is passed to
``on_change``, which registers it with name servers.

A topic that a client action creates enters ``configs`` only when ``topics.json`` with it is on disk. Until then
requests that need it wait (``NotReadyError``), so no message is acknowledged for a topic that a crash could take
away, on the Python path and on the native path alike. If the disk refuses the table the creation fails as a whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from typing import TYPE_CHECKING

from orbitmq.broker.fast_path.epoch import RouteEpoch
from orbitmq.broker.metadata.attributes import BATCH_QUEUES, QUEUE_TYPE
from orbitmq.broker.metadata.data_version import first_version, next_version, version_of_epoch
from orbitmq.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from orbitmq.protocol.message.flags import PERM_INHERIT, PERM_READ, PERM_WRITE
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
from orbitmq.remoting.processor import NotReadyError, RequestRefusedError
from orbitmq.store.config_tables import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.protocol.bodies import DataVersion
    from orbitmq.store import Clock

MAX_TOPICS = 50_000
"""RocketMQ has no limit, so a client that invents names could fill the memory of the broker and of every name
server, and make each change rewrite an ever-growing file. With this limit ``topics.json`` stays below some 20 MB,
and the whole table fits into the one frame in which an old client requests it. Each group takes one topic for its
retries. A store that already has more keeps them; only further ones are refused."""

MAX_QUEUES = 65_535
"""Per topic. The largest system topic of RocketMQ has 1024; responses that list every queue must stay small
enough."""

SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024

_LEGAL_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def name_complaint(kind: str, name: str) -> str | None:
    """The problem with a topic or group name regardless of its length, in RocketMQ's words; None if it is valid."""
    if not name or name.isspace():
        return f"The specified {kind} is blank."
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"The specified {kind}: {name}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def topic_name_problem(topic: str) -> str | None:
    """The problem with a topic name, in RocketMQ's words; None if it is valid."""
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


def topic_problem(config: TopicConfig) -> str | None:
    """The problem with the settings of a topic that another broker sent; None if there is none."""
    problem = topic_name_problem(config.topic_name)
    if problem is None and not min(config.read_queue_nums, config.write_queue_nums) >= 0:
        problem = f"the number of queues of {config.topic_name} is negative"
    if problem is None and max(config.read_queue_nums, config.write_queue_nums) > MAX_QUEUES:
        problem = f"{config.topic_name} has more than {MAX_QUEUES} queues"
    return problem


class TopicTable:
    """All topics of a broker. ``configs`` is the same dict for the lifetime of the table; do not write to it."""

    def __init__(
        self,
        writer: ConfigWriter,
        config: BrokerConfig,
        clock: Clock,
        *,
        timer_wheel: bool = True,
        route_epoch: RouteEpoch | None = None,
    ) -> None:
        """``timer_wheel``: create the timer topic; the store's ``timerWheelEnable``."""
        self._writer = writer
        self._config = config
        self._clock = clock
        self.configs: dict[str, TopicConfig] = {}
        self._creating: dict[str, TopicConfig] = {}
        """Topics that are in the next file, but not in ``configs`` before that file is on disk."""
        self._deleting: dict[str, TopicConfig] = {}
        """Topics that left ``configs``, but stay in the file until a crash cannot undo the deletion."""
        self._unsettled: dict[str, asyncio.Future[None]] = {}
        """By topic, a future that completes when its creation, change or deletion is finished."""
        self.data_version = first_version(clock)
        self.route_epoch = route_epoch or RouteEpoch()
        self.on_delete: Callable[[str], None] | None = None
        self.on_change: Callable[[Sequence[str]], None] | None = None
        """Called with the names of topics that are new or changed. Name servers are not notified of deleted
        ones."""
        own = _topics_of_a_new_broker(config, timer_wheel=timer_wheel)
        self.configs.update((topic.topic_name, topic) for topic in own)
        self.system_topics = SYSTEM_TOPICS | self.configs.keys()
        """Topics with RocketMQ's own names, and those named after this cluster or broker."""

    def load(self) -> None:
        """Load ``topics.json``; its entries replace defaults. Raises StoreError."""
        table = self._writer.load(TOPICS)
        self.configs.update(table.topic_config_table)
        if table.topic_config_table:
            self.data_version = table.data_version
            self.route_epoch.advance()

    def persist(self) -> None:
        """Write the table, even if it has not changed, so that a new broker leaves one behind when it stops."""
        self._writer.mark(TOPICS, self._wrapped, is_copy=True)

    def get(self, topic: str) -> TopicConfig | None:
        return self.configs.get(topic)

    def is_system_topic(self, topic: str) -> bool:
        return topic in self.system_topics or topic.startswith(SYSTEM_TOPIC_PREFIX)

    def batch_topics(self) -> list[str]:
        """Topics whose queues are numbered by batches; the store needs them before it opens."""
        return [name for name, config in self.configs.items() if config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES]

    # Topics that client actions create

    def create_for_send(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int
    ) -> TopicConfig | None:
        """The topic of a message, auto-created from ``default_topic`` if it is new and this is allowed.

        None if it is not allowed: the default topic is unknown or is not inherited. Raises RequestRefusedError at
        the limit of topics, NotReadyError while the new topic is not on disk. The name was checked before.
        """
        present = self.configs.get(topic)
        if present is not None:
            return present
        self.check_settled(topic)
        model = self.configs.get(default_topic)
        if model is None or not model.perm & PERM_INHERIT:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            # The file may have it from a time when it was allowed.
            return None
        queues = max(0, min(queue_count, model.write_queue_nums))
        raise NotReadyError(
            self.create(
                TopicConfig(
                    topic,
                    queues,
                    queues,
                    model.perm & ~PERM_INHERIT,
                    topic_filter_type=model.topic_filter_type,
                    topic_sys_flag=sys_flag,
                )
            )
        )

    def create_for_send_back(
        self, topic: str, queue_count: int, perm: int, sys_flag: int = 0, *, order: bool | None = None
    ) -> TopicConfig:
        """A retry or dead letter topic, created if it is new.

        Raises RequestRefusedError at the limit of topics, NotReadyError while the new topic is not on disk.
        ``order``, if given, replaces the setting of the topic.
        """
        present = self.configs.get(topic)
        if present is None:
            self.check_settled(topic)
            raise NotReadyError(
                self.create(
                    TopicConfig(topic, queue_count, queue_count, perm, order=bool(order), topic_sys_flag=sys_flag)
                )
            )
        if order is not None and order != present.order:
            present = dataclasses.replace(present, order=order)
            self.update(present)
        return present

    def create_at_once(self, topic: str, queue_count: int, perm: int) -> None:
        """A topic for messages of a background service, created if it is new. Raises RequestRefusedError.

        Such a service has no client that waits, and its record is in the log: if a crash loses the new table, the
        next start recovers the topic from the log.
        """
        if topic not in self.configs:
            self.check_room(1)
            self.update(TopicConfig(topic, queue_count, queue_count, perm))

    def create(self, *configs: TopicConfig) -> asyncio.Future[None]:
        """Create or change topics together; completes when they are on disk and in use. Raises RequestRefusedError.

        None of the topics may have a pending change. The future fails with RequestRefusedError if the disk refuses
        the table; new topics do not exist then, and others are as before. Until then a changed topic is used as
        before: a message in a new queue must not be acknowledged while a crash could take the queue away.
        """
        self.check_room(sum(config.topic_name not in self.configs for config in configs))
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for config in configs:
            self._creating[config.topic_name] = config
            self._unsettled[config.topic_name] = settled
        self.persist()
        self._writer.saved(TOPICS).add_done_callback(lambda saved: self._finish_creation(configs, settled, saved))
        return settled

    def _finish_creation(
        self, configs: Sequence[TopicConfig], settled: asyncio.Future[None], saved: asyncio.Future[None]
    ) -> None:
        for config in configs:
            del self._creating[config.topic_name]
            del self._unsettled[config.topic_name]
        if saved.cancelled() or saved.exception() is not None:
            # The file may have them, if another table was refused after it was written.
            self.persist()
            names = ", ".join(config.topic_name for config in configs)
            is_new = any(config.topic_name not in self.configs for config in configs)
            what = "created" if is_new else "changed"
            _fail(settled, f"topic {names} was not {what}: the disk does not take config/topics.json, free space")
            return
        for config in configs:
            self.configs[config.topic_name] = config
            self._next_version()
        if self.on_change is not None:
            self.on_change([config.topic_name for config in configs])
        settled.set_result(None)

    def check_settled(self, topic: str) -> None:
        """Raise NotReadyError while a topic is being created, changed or deleted."""
        unsettled = self._unsettled.get(topic)
        if unsettled is not None:
            raise NotReadyError(unsettled)

    @property
    def is_settled(self) -> bool:
        """True if no topic is being created, changed or deleted."""
        return not self._unsettled

    async def settled(self, topics: Iterable[str]) -> None:
        """Wait until none of these topics is being created, changed or deleted, with or without success."""
        names = set(topics)
        # All at once: a topic that was waited for earlier could get a new pending change.
        while unsettled := {self._unsettled[name] for name in names & self._unsettled.keys()}:
            await asyncio.wait(unsettled)

    # Changes by operators

    def check_room(self, count: int) -> None:
        """Raise RequestRefusedError if so many more topics exceed the limit."""
        creating = sum(name not in self.configs for name in self._creating)
        present = len(self.configs) + creating + len(self._deleting)
        if count > 0 and present + count > MAX_TOPICS:
            raise RequestRefusedError(
                f"topic limit reached: this broker has {present} topics, "
                f"at most {MAX_TOPICS} are allowed: delete some"
            )

    def update(self, *configs: TopicConfig) -> None:
        """Add or replace topics; one call for a change of several."""
        for config in configs:
            self.configs[config.topic_name] = config
            self._next_version()
        self.persist()
        if self.on_change is not None:
            self.on_change([config.topic_name for config in configs])

    def delete(self, topic: str) -> bool:
        """Delete a topic; False if it does not exist."""
        if self.configs.pop(topic, None) is None:
            return False
        self.bump()
        if self.on_delete is not None:
            self.on_delete(topic)
        return True

    def withdraw(self, topics: Iterable[str]) -> Callable[[bool], None]:
        """Begin to delete topics: no message is accepted for them from now on. Returns the function that ends the
        deletion.

        Call it once, with True if the topics are gone for good, or False to restore them. Until then they stay in
        the file, and requests that need them wait. None of them may have a pending change.
        """
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        names = list(topics)
        for name in names:
            self._unsettled[name] = settled
            config = self.configs.pop(name, None)
            if config is not None:
                self._deleting[name] = config
        self._next_version()

        def end(is_gone: bool) -> None:
            for name in names:
                del self._unsettled[name]
                config = self._deleting.pop(name, None)
                if config is not None and not is_gone:
                    self.configs.setdefault(name, config)
                elif config is not None and self.on_delete is not None:
                    self.on_delete(name)
            self.bump()
            settled.set_result(None)

        return end

    def set_ordered(self, topics: Iterable[str]) -> None:
        """Mark topics as ordered that a name server lists as ordered; others keep their setting.

        Not passed to ``on_change``, as in RocketMQ: the order flag is not part of the route.
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
        """Bump the data version without a changed topic, so that name servers accept the next registration as
        new."""
        self._next_version()
        self.persist()

    def begin_epoch(self, epoch: int) -> None:
        """Mark the table as that of the master of an epoch."""
        self.data_version = version_of_epoch(self.data_version, epoch, self._clock)
        self.route_epoch.advance()
        self.persist()

    def follow_version(self, version: DataVersion) -> None:
        """Take over the data version of the master, of whose table this is a copy now."""
        self.data_version = version
        self.route_epoch.advance()
        self.persist()

    def _next_version(self) -> None:
        self.data_version = next_version(self.data_version, self._clock)
        self.route_epoch.advance()

    def _wrapped(self) -> TopicConfigSerializeWrapper:
        table = {**self.configs, **self._deleting, **self._creating}
        return TopicConfigSerializeWrapper(table, self.data_version)


def _fail(settled: asyncio.Future[None], remark: str) -> None:
    settled.set_exception(RequestRefusedError(remark))
    settled.exception()  # retrieved, so that the loop does not report it where no request waits for it


def _topics_of_a_new_broker(config: BrokerConfig, *, timer_wheel: bool) -> list[TopicConfig]:
    """The topics that RocketMQ 5.5 begins with. Some carry the name of the cluster or broker, as a target for sends
    to it."""
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
