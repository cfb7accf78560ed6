"""Labels of RocketMQ's metrics: those that all have, and what counts as a system topic or group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.metrics.names import SCOPE
from orbitmq.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    is_system_group,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.metrics.instrument import Labels
    from orbitmq.protocol.bodies import TopicConfig

STORAGE: Labels = (("storage_medium", "disk"), ("storage_type", "local"))
_TYPES_OF_STORES = {SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay", TRANSACTION_HALF_TOPIC: "transaction"}


class LabelSource:
    """Makes the labels of one broker."""

    def __init__(
        self, cluster: str, broker_name: str, extra: Labels, is_system_topic: Callable[[str], bool]
    ) -> None:
        self.common: Labels = (
            ("cluster", cluster),
            ("node_id", broker_name),
            ("node_type", "broker"),
            SCOPE,
            *extra,
        )
        self._is_system_topic = is_system_topic

    def of(self, *pairs: tuple[str, str]) -> Labels:
        """These labels with the common ones."""
        return (*self.common, *pairs)

    def storage(self, *pairs: tuple[str, str]) -> Labels:
        return (*self.common, *STORAGE, *pairs)

    def is_system(self, topic: str, group: str = "") -> tuple[str, str]:
        """The label ``is_system`` of a topic, and of a group that reads it."""
        return ("is_system", text_of(self._is_system_topic(topic) or (bool(group) and is_system_group(group))))


def text_of(value: bool) -> str:
    """A truth value as Java prints it."""
    return "true" if value else "false"


def is_retry_or_dlq(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def message_type(topic: str, config: TopicConfig | None) -> str:
    """The label ``message_type`` of a stored topic.

    RocketMQ takes it from the properties of each message. Here it is that of the topic, so that nothing is done per
    message: a topic without the attribute ``message.type`` has normal messages.
    """
    known = _TYPES_OF_STORES.get(topic)
    if known is not None:
        return known
    kind = "NORMAL" if config is None else config.attributes.get("message.type", "NORMAL")
    return kind.lower() if kind in {"FIFO", "PRIORITY", "LITE"} else "normal"
