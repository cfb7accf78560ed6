"""Offsets: how far groups, delay levels and single clients have come."""

import dataclasses
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body, SetOf
from orbitmq.protocol.bodies.queues import MessageQueue
from orbitmq.protocol.bodies.version import DataVersion


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumerOffsetSerializeWrapper(Body):
    """All offsets of a broker (43): by ``topic@group`` and queue id; also ``config/consumerOffset.json``.

    ``group_topic_map`` repeats what the keys of ``offset_table`` say, ``pull_offset_table`` tells how far pulling
    has come; 5.x brokers write both. 4.x brokers send neither, and no version.
    """

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    pull_offset_table: dict[str, dict[int, int]] | None = None
    group_topic_map: dict[str, SetOf[str]] | None = None
    data_version: DataVersion | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class LmqConsumerOffsetSerializeWrapper(ConsumerOffsetSerializeWrapper):
    """The same of a broker with light queues, each of which is alone in its topic."""

    lmq_offset_table: dict[str, int] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class DelayOffsetSerializeWrapper(Body):
    """Delivered offset of each delay level (45); also ``config/delayOffset.json``."""

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ResetOffsetBody(Body):
    """New offsets for a group's clients (220, 222)."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class MessageQueueForC(Body):
    """A queue with its offset, for clients that cannot read objects as keys."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ResetOffsetBodyForC(Body):
    """The form of ``ResetOffsetBody`` that the C++ client reads."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GetConsumerStatusBody(Body):
    """Offsets as the clients have them (221, 223)."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class QueryCorrectionOffsetBody(Body):
    """By queue id, the offset a group should have (308)."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class OffsetSerializeWrapper(Body):
    """The file in which a broadcasting client keeps its own offsets."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class OffsetMovedEvent(Body):
    """A broker's note that it had to move a group's offset."""

    consumer_group: str = ""
    message_queue: MessageQueue | None = None
    offset_request: int = 0
    offset_new: int = 0
