"""Rules of lite topics: the attributes of parent topics and of the groups that are bound to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.metadata.attributes import LITE, MESSAGE_TYPE
from orbitmq.protocol.codes import ResponseCode
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
    from orbitmq.store import MessageStore

BIND_TOPIC = "lite.bind.topic"
SUB_MODEL = "lite.sub.model"
RESET_WHEN_TAKEN = "lite.sub.reset.offset.exclusive"
RESET_WHEN_LEFT = "lite.sub.reset.offset.unsubscribe"
WILDCARD = "lite.sub.wildcard"
EXPIRATION = "lite.topic.expiration"


class LiteRules:
    """What attributes say. A group or topic that does not exist has none."""

    def __init__(self, topics: TopicTable, groups: GroupTable, store: MessageStore) -> None:
        self._topics = topics
        self._groups = groups
        self._store = store

    def check_enabled(self) -> None:
        """Raise RequestRefusedError if this broker keeps no light queues."""
        if not self._store.dispatcher.has_lmqs:
            raise RequestRefusedError(
                "lite topics need enableLmq=true and enableMultiDispatch=true in the settings of the broker",
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            )

    def is_parent(self, topic: str) -> bool:
        """True for a topic that has lite topics."""
        config = self._topics.configs.get(topic)
        return config is not None and config.attributes.get(MESSAGE_TYPE) == LITE

    def parents(self) -> dict[str, int]:
        """Every parent topic, with the minutes for which its lite topics are kept."""
        return {name: self.minutes_kept(name) for name in self._topics.configs if self.is_parent(name)}

    def minutes_kept(self, parent: str) -> int:
        """For how long a lite topic without new messages is kept; not positive: without an end."""
        config = self._topics.configs.get(parent)
        text = "" if config is None else config.attributes.get(EXPIRATION, "")
        return int(text) if text.isdigit() and len(text) < 10 else -1

    def bound_topic(self, group: str) -> str | None:
        """The parent topic that a group is bound to."""
        return self._attribute(group, BIND_TOPIC) or None

    def bound_groups(self) -> dict[str, list[str]]:
        """The groups of every topic that has bound ones."""
        found: dict[str, list[str]] = {}
        for group in self._groups.configs:
            topic = self.bound_topic(group)
            if topic is not None:
                found.setdefault(topic, []).append(group)
        return found

    def is_exclusive(self, group: str) -> bool:
        """True if a lite topic has one client of the group at a time: the last that chose it."""
        return self._attribute(group, SUB_MODEL) == "Exclusive"

    def is_wildcard(self, group: str) -> bool:
        """True if every client of the group gets the messages of all lite topics."""
        return self._attribute(group, WILDCARD) is not None

    def is_set(self, group: str, name: str) -> bool:
        """True if a boolean attribute of a group is set."""
        return (self._attribute(group, name) or "").lower() == "true"

    def _attribute(self, group: str, name: str) -> str | None:
        config = self._groups.configs.get(group)
        return None if config is None else (config.attributes or {}).get(name)

    # Checks of requests, with RocketMQ's remarks

    def parent(self, topic: str) -> TopicConfig:
        """A topic that has to be a parent. Raises RequestRefusedError."""
        config = self._topics.configs.get(topic)
        if config is None:
            raise RequestRefusedError(f"Topic [{topic}] not exist.", ResponseCode.TOPIC_NOT_EXIST)
        if not self.is_parent(topic):
            raise RequestRefusedError(f"Topic [{topic}] type not match.", ResponseCode.INVALID_PARAMETER)
        return config

    def group(self, name: str) -> SubscriptionGroupConfig:
        """A group that has to exist. Raises RequestRefusedError."""
        config = self._groups.configs.get(name)
        if config is None:
            raise RequestRefusedError(f"Group [{name}] not exist.", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return config

    def topic_of_group(self, name: str) -> str:
        """The parent topic of a group that has to be bound to one. Raises RequestRefusedError."""
        self.group(name)
        topic = self.bound_topic(name)
        if topic is None:
            raise RequestRefusedError(f"Group [{name}] is not a LITE group.", ResponseCode.INVALID_PARAMETER)
        return topic
