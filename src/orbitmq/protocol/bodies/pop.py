"""POP: acknowledgements in bulk, and the check points and acks that lie in the revive topic."""

import dataclasses
from dataclasses import field
from typing import ClassVar

from orbitmq.protocol.bodies.codec import BitSet, Body, java


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BatchAck(Body):
    """Acknowledgements for one pop: bit i of ``bit_set`` stands for the offset ``start_offset`` + i."""

    consumer_group: str = field(default="", metadata=java("c", "consumerGroup"))
    topic: str = field(default="", metadata=java("t", "topic"))
    retry: str | None = field(default=None, metadata=java("r", "retry"))
    start_offset: int = field(default=0, metadata=java("so", "startOffset"))
    queue_id: int = field(default=0, metadata=java("q", "queueId"))
    revive_queue_id: int = field(default=0, metadata=java("rq", "reviveQueueId"))
    pop_time: int = field(default=0, metadata=java("pt", "popTime"))
    invisible_time: int = field(default=0, metadata=java("it", "invisibleTime"))
    bit_set: BitSet | None = field(default=None, metadata=java("b", "bitSet"))


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BatchAckMessageRequestBody(Body):
    """Acknowledgements for several pops (200151)."""

    broker_name: str | None = None
    acks: list[BatchAck] | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class PopCheckPoint(Body):
    """The body of a ``ck`` message: what a pop handed out. ``queue_offset_diff`` counts from the start offset."""

    start_offset: int = field(default=0, metadata=java("so", "startOffset"))
    pop_time: int = field(default=0, metadata=java("pt", "popTime"))
    invisible_time: int = field(default=0, metadata=java("it", "invisibleTime"))
    bit_map: int = field(default=0, metadata=java("bm", "bitMap"))
    num: int = field(default=0, metadata=java("n", "num"))
    queue_id: int = field(default=0, metadata=java("q", "queueId"))
    topic: str = field(default="", metadata=java("t", "topic"))
    cid: str = field(default="", metadata=java("c", "cid"))
    revive_offset: int = field(default=0, metadata=java("ro", "reviveOffset"))
    queue_offset_diff: tuple[int, ...] | None = field(default=None, metadata=java("d", "queueOffsetDiff"))
    broker_name: str | None = field(default=None, metadata=java("bn", "brokerName"))
    re_put_times: str | None = field(default=None, metadata=java("rp", "rePutTimes"))
    suspend: bool = field(default=False, metadata=java("sp", "suspend"))

    DERIVED: ClassVar[dict[str, str]] = {"reviveTime": "revive_time"}

    @property
    def revive_time(self) -> int:
        return self.pop_time + self.invisible_time


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class AckMsg(Body):
    """The body of an ``ack`` message."""

    ack_offset: int = field(default=0, metadata=java("ao", "ackOffset"))
    start_offset: int = field(default=0, metadata=java("so", "startOffset"))
    consumer_group: str = field(default="", metadata=java("c", "consumerGroup"))
    topic: str = field(default="", metadata=java("t", "topic"))
    queue_id: int = field(default=0, metadata=java("q", "queueId"))
    pop_time: int = field(default=0, metadata=java("pt", "popTime"))
    broker_name: str | None = field(default=None, metadata=java("bn", "brokerName"))


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BatchAckMsg(AckMsg):
    """The body of a ``bAck`` message: several offsets at once, ``ack_offset`` being -1."""

    ack_offset_list: tuple[int, ...] = field(default=(), metadata=java("aol", "ackOffsetList"))
