"""What has to be right before a group gets anything of a topic by POP: permissions, topic, queue, group, filter."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from orbitmq.broker.attributes import PRIORITY_FACTOR
from orbitmq.broker.pull import LONGEST_REMEMBERED
from orbitmq.broker.refusing import ADVICE, no_topic_to_pull
from orbitmq.filter import FilterError, compile_subscription
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.flags import PERM_READ
from orbitmq.remoting.processing import RequestRefusedError

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.topics import TopicTable
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.bodies import TopicConfig

_compiled = functools.lru_cache(maxsize=1024)(compile_subscription)


class PopChecks:
    """Raises RequestRefusedError in RocketMQ's words."""

    def __init__(self, config: BrokerConfig, topics: TopicTable, groups: GroupTable) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups

    def check_permission(self, doing: str) -> None:
        if not self._config.broker_permission & PERM_READ:
            raise RequestRefusedError(
                f"the broker[{self._config.broker_ip1}] {doing} message is forbidden", ResponseCode.NO_PERMISSION
            )

    def check(self, topic: str, group: str, queue_id: int, remote_address: str) -> TopicConfig:
        """Topic, queue (negative ones mean all) and group."""
        config = self.topic(topic)
        if not config.perm & PERM_READ:
            raise RequestRefusedError(
                f"the topic[{topic}] peeking message is forbidden", ResponseCode.NO_PERMISSION
            )
        if queue_id >= config.read_queue_nums:
            raise RequestRefusedError(
                illegal_queue(queue_id, config, remote_address), ResponseCode.INVALID_PARAMETER
            )
        found = self._groups.find(group)
        if found is None:
            raise RequestRefusedError(
                f"subscription group [{group}] does not exist, {ADVICE}", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        if not found.consume_enable:
            raise RequestRefusedError(f"subscription group no permission, {group}", ResponseCode.NO_PERMISSION)
        return config

    def check_settled(self, topic: str, queue_id: int, remote_address: str) -> None:
        """Topic and queue of a message that is to be acknowledged, or hidden for longer."""
        config = self.topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise RequestRefusedError(illegal_queue(queue_id, config, remote_address), ResponseCode.MESSAGE_ILLEGAL)

    def priority_factor(self, group: str) -> int:
        """Of a hundred pops so many go by the importance of queues, if the topic has such."""
        config = self._groups.configs.get(group)
        text = "" if config is None else (config.attributes or {}).get(PRIORITY_FACTOR, "")
        return int(text) if text.isdigit() and len(text) < 10 else 100

    def topic(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise no_topic_to_pull(topic)
        return config


def illegal_queue(queue_id: int, config: TopicConfig, remote_address: str) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{config.topic_name}] topicConfig.readQueueNums:"
        f"[{config.read_queue_nums}] consumer:[/{remote_address}]"
    )


def wanted_by(expression_type: str | None, expression: str | None) -> CompiledFilter | None:
    """Which messages are wanted; None if all are. Raises RequestRefusedError."""
    if not expression:
        return None
    compiled = _compiled if len(expression) <= LONGEST_REMEMBERED else compile_subscription
    try:
        wanted = compiled(expression_type, expression)
    except FilterError as error:
        raise RequestRefusedError(
            "parse the consumer's subscription failed", ResponseCode.SUBSCRIPTION_PARSE_FAILED
        ) from error
    return None if wanted.matches_all else wanted
