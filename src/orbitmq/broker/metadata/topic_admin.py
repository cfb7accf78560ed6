"""Admin requests for topics: create, change, delete, list, clean up."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.metadata.attributes import (
    BATCH_QUEUES,
    LITE,
    MESSAGE_TYPE,
    MIXED,
    QUEUE_TYPE,
    TOPIC_ATTRIBUTES,
    altered,
    parse_changes,
)
from orbitmq.broker.metadata.data_version import first_version, page_of
from orbitmq.broker.metadata.topic_recovery import holds_messages
from orbitmq.broker.metadata.topics import MAX_QUEUES, topic_name_problem
from orbitmq.broker.stats.counters import TOPIC_PUT_NUMS
from orbitmq.broker.time_slices import decoded, encoded, in_slices
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
from orbitmq.protocol.message.lite_topic import light_queue_prefix
from orbitmq.protocol.names import LMQ_PREFIX, POP_RETRY_SEPARATOR_V1, POP_RETRY_SEPARATOR_V2, RETRY_PREFIX
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of
from orbitmq.store import StoreError
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue
from orbitmq.store.recovery.deleted_topics import DELETED_TOPICS, MAX_DELETED_TOPICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store.background.service import StoreService

log = logging.getLogger("orbitmq.broker")

NO_REMARK_SET = "not set any response code"
"""RocketMQ leaves this remark in the response when a topic was created; code 0 is what counts."""

MAX_PERM = 15

LIGHT_QUEUES_AT_ONCE = 100
"""Light queues that are deleted together."""


class TopicRequests:
    """Requests that change something are answered once the change is on disk.

    ``registered`` waits until name servers that respond know of a change: a tool that creates a topic requests its
    route next.
    """

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        service: StoreService,
        clients: Clients,
        registered: Callable[[], Awaitable[None]] | None = None,
        timer: TimerService | None = None,
    ) -> None:
        self._config = runtime.config
        self._service = service
        self._store = service.store
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._clients = clients
        self._stats = runtime.stats
        self._writer = runtime.writer
        self._registered = registered
        self._timer = timer
        # There are no static topics; slaves get the time since when that is so.
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

    # Create and change

    async def update(self, request: Command, _: Connection) -> Command:
        await self._put([self._wanted(request)])
        return request.response(ResponseCode.SUCCESS, remark=NO_REMARK_SET)

    async def update_list(self, request: Command, _: Connection) -> Command:
        topic_list = await decoded(CreateTopicListRequestBody, request.body or b"{}")
        await self._put(topic_list.topic_config_list)
        return request.response(ResponseCode.SUCCESS, remark=NO_REMARK_SET)

    def update_static(self, request: Command, _: Connection) -> Command:
        """Refused: queues of a static topic move between brokers, which is not supported."""
        self._check_name(fields_of(request)["topic"])
        raise RequestRefusedError(
            "this broker does not serve static topics: create a topic with updateTopic instead"
        )

    def _wanted(self, request: Command) -> TopicConfig:
        """The topic that a request describes, with the requested changes as its attributes."""
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
        """Create or change all topics; if one is invalid, none. Skips topics that have these settings already."""
        names = [config.topic_name for config in wanted]
        await self._topics.settled(names)
        present = self._topics.configs
        before = dict(present)
        result: dict[str, TopicConfig] = {}
        async for config in in_slices(wanted):
            name = config.topic_name
            result[name] = self._checked(config, result.get(name) or before.get(name))
        await self._topics.settled(names)
        # Topics that others have changed in between are few.
        stale = {name for name in result if present.get(name) is not before.get(name)}
        for name in stale:
            del result[name]
        for config in wanted if stale else ():
            name = config.topic_name
            if name in stale:
                result[name] = self._checked(config, result.get(name) or present.get(name))
        changed = [config for name, config in result.items() if config != present.get(name)]
        self._topics.check_room(sum(config.topic_name not in present for config in changed))
        if not changed:
            return
        for config in changed:
            # Before the first message: the store looks it up when it creates the first queue.
            if config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
                self._store.queues.batch_topics.add(config.topic_name)
        await self._create(changed)
        log.info("topics: created or changed %s", ", ".join(config.topic_name for config in changed))
        await self._writer.saved()
        if self._registered is not None:
            await self._registered()

    async def _create(self, configs: list[TopicConfig]) -> None:
        new = [config.topic_name for config in configs if config.topic_name not in self._topics.configs]
        try:
            await self._topics.create(*configs)
        except RequestRefusedError:
            self._store.queues.batch_topics.difference_update(new)
            raise

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

    # Read

    async def all_configs(self, request: Command, _: Connection) -> Command:
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
            topic_config_table=dict(configs) if page is None else {name: configs[name] for name in page},
            data_version=self._topics.data_version,
            mapping_data_version=self._mapping_version,
        )
        return request.response(
            ResponseCode.SUCCESS,
            ext_fields={"totalTopicNum": str(len(configs))},
            body=await encoded(body, len(body.topic_config_table)),
        )

    def config(self, request: Command, _: Connection) -> Command:
        topic = fields_of(request)["topic"]
        config = self._topics.get(topic)
        if config is None:
            raise RequestRefusedError(f"No topic in this broker. topic: {topic}", ResponseCode.TOPIC_NOT_EXIST)
        return request.response(ResponseCode.SUCCESS, body=config.encode())

    async def stats(self, request: Command, _: Connection) -> Command:
        """Min and max offsets of the queues of a topic, and its send rate."""
        topic = fields_of(request)["topic"]
        config = self._topics.get(topic)
        if config is None:
            raise RequestRefusedError(f"topic[{topic}] not exist", ResponseCode.TOPIC_NOT_EXIST)
        table = TopicStatsTable(topic_put_tps=self._stats.minute_tps(TOPIC_PUT_NUMS, topic))
        count = max(config.read_queue_nums, config.write_queue_nums)
        async for queue_id in in_slices(range(count)):
            queue = MessageQueue(topic, self._config.broker_name, queue_id)
            table.offset_table[queue] = self._ends(topic, queue_id)
        return request.response(ResponseCode.SUCCESS, body=await encoded(table, count))

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
        # RocketMQ's value for an expired message is -1.
        last = time if time is not None else -1 if queue.max_offset > 0 else 0
        return TopicOffset(max(queue.min_offset, 0), max(queue.max_offset, 0), last)

    def system_topics(self, request: Command, _: Connection) -> Command:
        return request.response(ResponseCode.SUCCESS, body=TopicList(sorted(self._topics.system_topics)).encode())

    async def consumed_by(self, request: Command, _: Connection) -> Command:
        """Groups that subscribe to a topic now, or have committed offsets for it."""
        topic = fields_of(request)["topic"]
        groups = self._clients.groups_subscribed_to(topic) | self._offsets.groups_of(topic)
        body = await encoded(GroupList(sorted(groups)), len(groups))
        return request.response(ResponseCode.SUCCESS, body=body)

    async def topics_of_group(self, request: Command, _: Connection) -> Command:
        topics = self._offsets.topics_of(fields_of(request)["group"])
        body = await encoded(TopicList(sorted(topics), self._config.broker_address), len(topics))
        return request.response(ResponseCode.SUCCESS, body=body)

    # Delete and clean up

    async def delete(self, request: Command, _: Connection) -> Command:
        """Delete a topic with its queues and offsets. A missing topic is a success."""
        topic = fields_of(request)["topic"]
        if not topic or topic.isspace():
            raise RequestRefusedError("The specified topic is blank.", ResponseCode.INVALID_PARAMETER)
        self._check_not_system(topic)
        gone = [topic]
        if self._config.clear_retry_topic_when_delete_topic:
            gone += [name for name in self._pop_retry_topics(topic) if name in self._topics.configs]
        await self._topics.settled(gone)
        config = self._topics.configs.get(topic)
        light = []
        if config is not None and config.attributes.get(MESSAGE_TYPE) == LITE:
            # First, so that none of them is left without its parent if the deletion is interrupted.
            await self.delete_light_queues(self._light_queues_of(topic))
            await self._topics.settled(self._light_queues_of(topic))
            light = self._light_queues_of(topic)
        await self._delete(gone + light)
        log.info("topics: deleted %s", ", ".join(gone))
        await self._writer.saved()
        return request.response(ResponseCode.SUCCESS)

    def _light_queues_of(self, parent: str) -> list[str]:
        prefix = light_queue_prefix(parent)
        return [name for name in self._store.queues.names() if name.startswith(prefix)]

    async def delete_light_queues(self, names: list[str]) -> None:
        """Delete the light queues of lite topics, whose messages wait meanwhile. Raises RequestRefusedError."""
        for at in range(0, len(names), LIGHT_QUEUES_AT_ONCE):
            part = names[at : at + LIGHT_QUEUES_AT_ONCE]
            await self._topics.settled(part)
            left = [name for name in part if self._store.queues.find(name, 0) is not None]
            if left:
                await self._delete(left)

    async def _delete(self, topics: list[str]) -> None:
        """Delete topics so that no crash restores their messages.

        Before their queues are removed, the log offset up to which messages belong to the deleted topics is
        persisted.
        """
        deleted = self._store.deleted
        if deleted.is_full:
            raise RequestRefusedError(
                f"{len(deleted.ends)} deleted topics have messages in the log, and {MAX_DELETED_TOPICS} at most "
                "are allowed: wait until retention has removed some (fileReservedTime)"
            )
        end = self._topics.withdraw(topics)
        before = {name: deleted.ends.get(name, 0) for name in topics}
        is_gone = False
        try:
            await self._service.flushed(self._store.log.end)
            noted = [name for name in topics if self._store.mark_deleted(name)]
            if noted:
                self._writer.mark(DELETED_TOPICS, deleted.table)
                await self._writer.saved(DELETED_TOPICS)
            is_gone = True
        except StoreError as error:
            deleted.ends.update(before)
            self._writer.mark(DELETED_TOPICS, deleted.table)
            raise RequestRefusedError(
                f"{topics[0]} was not deleted, because the disk refused the write: free space or repair the disk"
            ) from error
        finally:
            end(is_gone)
        for name in topics:
            self._offsets.remove_topic(name)
            self._remove_queues(name)
            if self._timer is not None:
                self._timer.counts.forget(name)
            if self._config.auto_delete_unused_stats:
                self._stats.forget_topic(name)
        self._offsets.persist()

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """Retry topics of messages that a group popped and did not ack."""
        separators = (POP_RETRY_SEPARATOR_V2, POP_RETRY_SEPARATOR_V1)
        groups = sorted(self._offsets.groups_of(topic))
        return [f"{RETRY_PREFIX}{group}{separator}{topic}" for group in groups for separator in separators]

    async def clean_queues(self, request: Command, _: Connection) -> Command:
        """CLEAN_EXPIRED_CONSUMEQUEUE: remove the queue files of expired records.

        RocketMQ also destroys a queue all of whose records have expired, and its numbering restarts below the
        committed offsets of consumers. Here it continues.
        """
        async for queue in in_slices(list(self._store.queues.opened())):
            try:
                queue.expire(self._store.log.start)
            except OSError as error:
                raise _disk_refusal(queue.topic, error) from error
        return request.response(ResponseCode.SUCCESS)

    def clean_log(self, request: Command, _: Connection) -> Command:
        """DELETE_EXPIRED_COMMITLOG: remove expired log files soon, whatever the hour."""
        self._service.retention.request()
        return request.response(ResponseCode.SUCCESS)

    def clean_unused(self, request: Command, _: Connection) -> Command:
        """CLEAN_UNUSED_TOPIC: remove queues of unknown topics, unless they have readable messages.

        RocketMQ removes the messages of such a topic too. Here they belong to a topic whose settings were lost, or
        to one that was deleted and has received messages since; an operator deletes it by its name.
        """
        for name in self._store.queues.names():
            is_used = name in self._topics.configs or self._topics.is_system_topic(name)
            if is_used or name.startswith(LMQ_PREFIX):
                continue
            if holds_messages(self._store, name):
                log.warning("topics: kept the queues of unknown topic %s: they have messages", name)
                continue
            self._remove_queues(name)
            log.info("topics: removed the queues of unknown topic %s", name)
        return request.response(ResponseCode.SUCCESS)

    def _remove_queues(self, topic: str) -> None:
        try:
            self._store.remove_queues(topic)
        except OSError as error:
            raise _disk_refusal(topic, error) from error
        self._store.queues.batch_topics.discard(topic)


def _disk_refusal(topic: str, error: OSError) -> RequestRefusedError:
    return RequestRefusedError(f"the queues of {topic} cannot be removed: {error.strerror or error}")
