"""Validation of POP requests: permissions, topic, queue, group and filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.errors import ADVICE, check_not_of_service, no_topic_to_pull
from orbitmq.broker.metadata.attributes import PRIORITY_FACTOR
from orbitmq.broker.pull.subscription_filter import SubscriptionTooLongError, compile_carried
from orbitmq.filter import FilterError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.flags import PERM_READ
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.bodies import TopicConfig


class PopChecks:
    """The checks. They raise RequestRefusedError with RocketMQ's remarks."""

    def __init__(self, config: BrokerConfig, topics: TopicTable, groups: GroupTable) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups

    def check_permission(self, action: str) -> None:
        if not self._config.broker_permission & PERM_READ:
            raise RequestRefusedError(
                f"the broker[{self._config.broker_ip1}] {action} message is forbidden", ResponseCode.NO_PERMISSION
            )

    def check(self, topic: str, group: str, queue_id: int, remote_address: str) -> TopicConfig:
        """Check topic, queue (negative: all) and group of a pop."""
        config = self.topic(topic)
        if not config.perm & PERM_READ:
            raise RequestRefusedError(
                f"the topic[{topic}] peeking message is forbidden", ResponseCode.NO_PERMISSION
            )
        if queue_id >= config.read_queue_nums:
            raise RequestRefusedError(
                illegal_queue(queue_id, config, remote_address), ResponseCode.INVALID_PARAMETER
            )
        check_not_of_service(group)
        found = self._groups.find(group, remote_address)
        if found is None:
            raise RequestRefusedError(
                f"subscription group [{group}] does not exist, {ADVICE}", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        if not found.consume_enable:
            raise RequestRefusedError(f"subscription group no permission, {group}", ResponseCode.NO_PERMISSION)
        return config

    def check_message(self, topic: str, queue_id: int, remote_address: str) -> None:
        """Check topic and queue of an acknowledgement or a change of invisible time."""
        config = self.topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise RequestRefusedError(illegal_queue(queue_id, config, remote_address), ResponseCode.MESSAGE_ILLEGAL)

    def priority_factor(self, group: str) -> int:
        """The percentage of pops of a PRIORITY topic that go by priority."""
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


def filter_of(config: BrokerConfig, expression_type: str | None, expression: str | None) -> CompiledFilter | None:
    """The filter of a request; None if it matches everything. Raises RequestRefusedError."""
    if not expression:
        return None
    try:
        wanted = compile_carried(config, expression_type, expression)
    except SubscriptionTooLongError as error:
        raise RequestRefusedError(str(error), ResponseCode.SUBSCRIPTION_PARSE_FAILED) from error
    except FilterError as error:
        raise RequestRefusedError(
            "parse the consumer's subscription failed", ResponseCode.SUBSCRIPTION_PARSE_FAILED
        ) from error
    return None if wanted.matches_all else wanted
