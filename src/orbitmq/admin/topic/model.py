"""Values about topics: in a list, described with their queues, and the settings to create or alter them with."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from orbitmq.protocol.message.flags import PERM_READ, PERM_WRITE
from orbitmq.protocol.names import DLQ_PREFIX, REPLY_TOPIC_POSTFIX, RETRY_PREFIX, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from orbitmq.protocol.bodies import TopicConfig


class TopicKind(enum.StrEnum):
    """The kinds of topics that lists tell apart."""

    NORMAL = "normal"
    RETRY = "retry"
    DEAD_LETTER = "dead letter"
    SYSTEM = "system"


def kind_of(topic: str, servers: Collection[str] = ()) -> TopicKind:
    """The kind of a topic. ``servers`` are the names of clusters and brokers, which are topics too."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DEAD_LETTER
    if is_system_topic(topic) or topic in servers or topic.removesuffix(REPLY_TOPIC_POSTFIX) in servers:
        return TopicKind.SYSTEM
    return TopicKind.NORMAL


def perm_text(perm: int) -> str:
    """``RW-``, ``R--``, as RocketMQ's tools write a permission."""
    letters = ((PERM_READ, "R"), (PERM_WRITE, "W"), (1, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in letters)


MESSAGE_TYPE = "message.type"
"""The attribute that has the type of a topic's messages; brokers list it without the plus of a request."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Settings of a topic. None leaves a value as it is, or as brokers create it."""

    read_queues: int | None = None
    write_queues: int | None = None
    perm: int | None = None
    """2 write, 4 read, 6 both."""
    order: bool | None = None
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Values to set, ``message.type`` for example."""
    remove_attributes: tuple[str, ...] = ()
    unit: bool | None = None
    unit_subscribed: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TopicPlacement:
    """The settings of a topic on one broker."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, broker_name: str, config: TopicConfig) -> TopicPlacement:
        return cls(
            broker_name,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
            config.topic_sys_flag,
            config.order,
            dict(config.attributes),
        )

    def values(self) -> dict[str, object]:
        """The settings by name, for differences."""
        return {
            "read queues": self.read_queues,
            "write queues": self.write_queues,
            "perm": perm_text(self.perm),
            "order": self.order,
            **{f"attribute {name}": value for name, value in sorted(self.attributes.items())},
        }


@dataclasses.dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in a list, with its settings at each broker."""

    name: str
    kind: TopicKind
    placements: tuple[TopicPlacement, ...]

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(place.broker_name for place in self.placements)

    @property
    def write_queues(self) -> int:
        """Of all brokers together."""
        return sum(place.write_queues for place in self.placements)

    @property
    def read_queues(self) -> int:
        return sum(place.read_queues for place in self.placements)

    @property
    def message_type(self) -> str:
        """The type of its messages, ``NORMAL`` unless an attribute says otherwise."""
        return next(
            (place.attributes[MESSAGE_TYPE] for place in self.placements if MESSAGE_TYPE in place.attributes),
            "NORMAL",
        )

    @property
    def is_consistent(self) -> bool:
        """All brokers have the same permission, order and attributes."""
        first = self.placements[0] if self.placements else None
        return all(
            first is not None
            and (one.perm, one.order, one.attributes) == (first.perm, first.order, first.attributes)
            for one in self.placements
        )


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class QueueStatus:
    """A queue with the offsets of its oldest message and of the next one."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_ms: int
    """Store time of the last message; 0 if the queue is empty."""

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclasses.dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its route, settings, queues and groups."""

    name: str
    kind: TopicKind
    placements: tuple[TopicPlacement, ...]
    queues: tuple[QueueStatus, ...]
    groups: tuple[str, ...]
    """The groups that have consumed it, or are doing so."""
    put_tps: float
    order_configuration: str
    addresses: Mapping[str, Mapping[int, str]]
    """By broker name and broker id."""

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def last_update_ms(self) -> int:
        return max((queue.last_update_ms for queue in self.queues), default=0)
