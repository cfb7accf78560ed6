"""What tools, proxies and slaves ask about topics: to create, change, delete and show them."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.attributes import (
    BATCH_QUEUES,
    MESSAGE_TYPE,
    MIXED,
    QUEUE_TYPE,
    TOPIC_ATTRIBUTES,
    altered,
    parse_changes,
)
from orbitmq.broker.stats import TOPIC_PUT_NUMS
from orbitmq.broker.table_versions import first_version, page_of
from orbitmq.broker.topics import MAX_QUEUES, topic_name_problem
from orbitmq.protocol.bodies import (
    CreateTopicListRequestBody,
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.names import LMQ_PREFIX, POP_RETRY_SEPARATOR_V1, POP_RETRY_SEPARATOR_V2, RETRY_PREFIX
from orbitmq.remoting.processing import RequestRefusedError, fields_of, handler_of
from orbitmq.store.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer import TimerService
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store.service import StoreService

log = logging.getLogger("orbitmq.broker")

NO_REMARK_SET = "not set any response code"
"""RocketMQ forgets to take this remark out of its answer when a topic was created: code 0 says what counts."""

MAX_PERM = 15


class TopicRequests:
    """Processors for requests about topics. What changes something is answered when that is on the disk.

    ``registered`` waits until name servers know of a change, but not for those that do not answer: a tool that
    creates a topic asks for its route next.
    """

    def __init__(
        self,
        config: BrokerConfig,
        service: StoreService,
        topics: TopicTable,
        offsets: OffsetTable,
        clients: Clients,
        stats: BrokerStats,
        writer: ConfigWriter,
        registered: Callable[[], Awaitable[None]] | None = None,
        timer: TimerService | None = None,
    ) -> None:
        self._config = config
        self._service = service
        self._store = service.store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        self._writer = writer
        self._registered = registered
        self._timer = timer
        # There are no static topics, and since when there are none is what slaves are told.
        self._mapping_version = first_version(service.store.clock)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: handler_of(self.update),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: handler_of(self.update_list),
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: handler_of(self.update_static),
            RequestCode.GET_ALL_TOPIC_CONFIG: handler_of(self.all_configs),
            RequestCode.GET_TOPIC_CONFIG: handler_of(self.config),
            RequestCode.GET_TOPIC_STATS_INFO: handler_of(self.stats),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: handler_of(self.system_topics),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: handler_of(self.consumed_by),
            RequestCode.QUERY_TOPICS_BY_CONSUMER: handler_of(self.topics_of_group),
            RequestCode.DELETE_TOPIC_IN_BROKER: handler_of(self.delete),
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: handler_of(self.clean_queues),
            RequestCode.DELETE_EXPIRED_COMMITLOG: handler_of(self.clean_log),
            RequestCode.CLEAN_UNUSED_TOPIC: handler_of(self.clean_unused),
        }

    # Creating and changing

    async def update(self, request: Command, _: Connection) -> Command:
        await self._put([self._wanted(request)])
        return request.response(ResponseCode.SUCCESS, remark=NO_REMARK_SET)

    async def update_list(self, request: Command, _: Connection) -> Command:
        await self._put(CreateTopicListRequestBody.decode(request.body or b"{}").topic_config_list)
        return request.response(ResponseCode.SUCCESS, remark=NO_REMARK_SET)

    def update_static(self, request: Command, _: Connection) -> Command:
        """Refused: queues of a static topic move between brokers, which no broker here can do yet."""
        self._check_name(fields_of(request)["topic"])
        raise RequestRefusedError(
            "this broker does not serve static topics: create a topic with updateTopic instead"
        )

    def _wanted(self, request: Command) -> TopicConfig:
        """The topic as a request describes it; its attributes are the changes that it asks for."""
        fields = fields_of(request)
        self._check_name(fields["topic"])
        try:
            filter_type = TopicFilterType(fields["topicFilterType"])
        except ValueError:
            raise RequestRefusedError(f"topicFilterType = [{fields['topicFilterType']}] value invalid") from None
        return TopicConfig(
            fields["topic"],
            fields["readQueueNums"],
            fields["writeQueueNums"],
            fields["perm"],
            filter_type,
            fields["topicSysFlag"] or 0,
            fields["order"],
            parse_changes(fields["attributes"]),
        )

    async def _put(self, wanted: list[TopicConfig]) -> None:
        """All of them or, if one is not right, none. Topics that are so already are left alone."""
        present = self._topics.configs
        result: dict[str, TopicConfig] = {}
        for config in wanted:
            name = config.topic_name
            result[name] = self._checked(config, result.get(name) or present.get(name))
        changed = [config for name, config in result.items() if config != present.get(name)]
        self._topics.check_room(sum(config.topic_name not in present for config in changed))
        if not changed:
            return
        for config in changed:
            # Before the first message: the store asks when it makes the first queue.
            if config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
                self._store.queues.batch_topics.add(config.topic_name)
        self._topics.update(*changed)
        log.info("created or changed: %s", ", ".join(config.topic_name for config in changed))
        await self._writer.saved()
        if self._registered is not None:
            await self._registered()

    def _checked(self, config: TopicConfig, present: TopicConfig | None) -> TopicConfig:
        self._check_name(config.topic_name)
        for what, count in (
            ("readQueueNums", config.read_queue_nums),
            ("writeQueueNums", config.write_queue_nums),
        ):
            if not 0 <= count <= MAX_QUEUES:
                raise RequestRefusedError(
                    f"{what} {count} is not between 0 and {MAX_QUEUES}", ResponseCode.INVALID_PARAMETER
                )
        if not 0 <= config.perm <= MAX_PERM:
            raise RequestRefusedError(f"perm {config.perm} is not between 0 and 15", ResponseCode.INVALID_PARAMETER)
        if config.attributes.get(f"+{MESSAGE_TYPE}") == MIXED and not self._config.enable_mixed_message_type:
            raise RequestRefusedError("MIXED message type is not supported.", ResponseCode.INVALID_PARAMETER)
        attributes = altered(TOPIC_ATTRIBUTES, None if present is None else present.attributes, config.attributes)
        return dataclasses.replace(config, attributes=attributes)

    def _check_name(self, topic: str) -> None:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise RequestRefusedError(problem, ResponseCode.INVALID_PARAMETER)
        self._check_not_system(topic)

    def _check_not_system(self, topic: str) -> None:
        if self._config.validate_system_topic_when_update_topic and self._topics.is_system_topic(topic):
            raise RequestRefusedError(
                f"The topic[{topic}] is conflict with system topic.", ResponseCode.INVALID_PARAMETER
            )

    # Showing

    def all_configs(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        configs = self._topics.configs
        page = page_of(
            configs,
            self._topics.data_version,
            asked_version=fields["dataVersion"],
            start=fields["topicSeq"],
            most=fields["maxTopicNum"],
            page_size=self._config.split_metadata_size if self._config.enable_split_metadata else None,
        )
        body = TopicConfigAndMappingSerializeWrapper(
            topic_config_table=configs if page is None else {name: configs[name] for name in page},
            data_version=self._topics.data_version,
            mapping_data_version=self._mapping_version,
        )
        return request.response(
            ResponseCode.SUCCESS, ext_fields={"totalTopicNum": str(len(configs))}, body=body.encode()
        )

    def config(self, request: Command, _: Connection) -> Command:
        topic = fields_of(request)["topic"]
        config = self._topics.get(topic)
        if config is None:
            raise RequestRefusedError(f"No topic in this broker. topic: {topic}", ResponseCode.TOPIC_NOT_EXIST)
        return request.response(ResponseCode.SUCCESS, body=config.encode())

    def stats(self, request: Command, _: Connection) -> Command:
        """Where the queues of a topic begin and end, and how much is sent to it."""
        topic = fields_of(request)["topic"]
        config = self._topics.get(topic)
        if config is None:
            raise RequestRefusedError(f"topic[{topic}] not exist", ResponseCode.TOPIC_NOT_EXIST)
        table = TopicStatsTable(topic_put_tps=self._stats.minute_tps(TOPIC_PUT_NUMS, topic))
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            queue = MessageQueue(topic, self._config.broker_name, queue_id)
            table.offset_table[queue] = self._ends(topic, queue_id)
        return request.response(ResponseCode.SUCCESS, body=table.encode())

    def _ends(self, topic: str, queue_id: int) -> TopicOffset:
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            return TopicOffset()
        time: int | None = None
        if isinstance(queue, ConsumeQueue):
            unit = queue.unit(queue.max_offset - 1) if queue.max_offset > 0 else None
            time = None if unit is None else self._store.reader.store_timestamp(unit[0])
        else:
            batch = queue.unit(queue.max_offset - 1) if queue.max_offset > 0 else None
            time = None if batch is None else batch.store_timestamp
        # What RocketMQ says of a message that has expired is -1.
        last = time if time is not None else -1 if queue.max_offset > 0 else 0
        return TopicOffset(max(queue.min_offset, 0), max(queue.max_offset, 0), last)

    def system_topics(self, request: Command, _: Connection) -> Command:
        return request.response(ResponseCode.SUCCESS, body=TopicList(sorted(self._topics.system_topics)).encode())

    def consumed_by(self, request: Command, _: Connection) -> Command:
        """The groups that subscribe a topic now, or have come somewhere in it."""
        topic = fields_of(request)["topic"]
        groups = self._clients.groups_subscribed_to(topic) | self._offsets.groups_of(topic)
        return request.response(ResponseCode.SUCCESS, body=GroupList(sorted(groups)).encode())

    def topics_of_group(self, request: Command, _: Connection) -> Command:
        topics = self._offsets.topics_of(fields_of(request)["group"])
        body = TopicList(sorted(topics), self._config.broker_address).encode()
        return request.response(ResponseCode.SUCCESS, body=body)

    # Removing

    async def delete(self, request: Command, _: Connection) -> Command:
        """Remove a topic with its queues and offsets. One that is not there is as good as removed."""
        topic = fields_of(request)["topic"]
        if not topic or topic.isspace():
            raise RequestRefusedError("The specified topic is blank.", ResponseCode.INVALID_PARAMETER)
        self._check_not_system(topic)
        gone = [topic]
        if self._config.clear_retry_topic_when_delete_topic:
            gone += [name for name in self._pop_retry_topics(topic) if name in self._topics.configs]
        for name in gone:
            self._topics.delete(name)
            self._offsets.remove_topic(name)
            self._remove_queues(name)
            if self._timer is not None:
                self._timer.counts.forget(name)
            if self._config.auto_delete_unused_stats:
                self._stats.forget_topic(name)
        self._offsets.persist()
        log.info("deleted: %s", ", ".join(gone))
        await self._writer.saved()
        return request.response(ResponseCode.SUCCESS)

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """Where messages of the topic go that a group popped and did not acknowledge."""
        separators = (POP_RETRY_SEPARATOR_V2, POP_RETRY_SEPARATOR_V1)
        groups = sorted(self._offsets.groups_of(topic))
        return [f"{RETRY_PREFIX}{group}{separator}{topic}" for group in groups for separator in separators]

    def clean_queues(self, request: Command, _: Connection) -> Command:
        """Remove the queue files of records that have expired.

        RocketMQ also destroys a queue all of whose records have expired, and its numbering begins again below what
        consumers have committed. Here it goes on.
        """
        for queue in list(self._store.queues.opened()):
            try:
                queue.expire(self._store.log.start)
            except OSError as error:
                raise _disk_refusal(queue.topic, error) from error
        return request.response(ResponseCode.SUCCESS)

    def clean_log(self, request: Command, _: Connection) -> Command:
        """Remove expired log files soon, whatever the hour."""
        self._service.retention.request()
        return request.response(ResponseCode.SUCCESS)

    def clean_unused(self, request: Command, _: Connection) -> Command:
        """Remove the queues of topics that the broker no longer knows."""
        for name in self._store.queues.names():
            is_used = name in self._topics.configs or self._topics.is_system_topic(name)
            if not is_used and not name.startswith(LMQ_PREFIX):
                self._remove_queues(name)
                log.info("removed the queues of %s, which is no topic here", name)
        return request.response(ResponseCode.SUCCESS)

    def _remove_queues(self, topic: str) -> None:
        try:
            self._store.delete_topic(topic)
        except OSError as error:
            raise _disk_refusal(topic, error) from error
        self._store.queues.batch_topics.discard(topic)


def _disk_refusal(topic: str, error: OSError) -> RequestRefusedError:
    return RequestRefusedError(f"the queues of {topic} cannot be removed: {error.strerror or error}")
