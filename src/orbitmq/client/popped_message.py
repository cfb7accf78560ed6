"""A message that was popped, with what to show for it; and how the messages of an answer come by that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.messages import ReceivedMessage
from orbitmq.protocol import property_names as names
from orbitmq.protocol.batch import is_inner_batch, split_record
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import decode_fields
from orbitmq.protocol.pop import Receipt, parse_counts, parse_starts, real_topic, topic_kind
from orbitmq.protocol.properties import find
from orbitmq.protocol.record import iter_records
from orbitmq.protocol.response_fields import RESPONSE_FIELDS

if TYPE_CHECKING:
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.record import Record

_POP_CK = names.POP_CHECKPOINT.encode()


class PoppedMessage(ReceivedMessage):
    """A message that is hidden from the rest of the group until ``invisible_until``, or until it is settled."""

    __slots__ = ("popped_from", "receipt")

    def __init__(self, record: Record, broker_name: str, topic: str, popped_from: str, receipt: Receipt) -> None:
        super().__init__(record, broker_name, topic)
        self.popped_from = popped_from
        """The topic as brokers know it, which is a retry topic if the message came again."""
        self.receipt = receipt

    @property
    def invisible_until(self) -> float:
        """When others may get it, in seconds since 1970 by the broker's clock."""
        return (self.receipt.pop_time + self.receipt.invisible_ms) / 1000


def popped_messages(answer: Command, broker_name: str, topic: str, group: str, name: str) -> list[PoppedMessage]:
    """The messages of an answer to a pop. Raises ProtocolError.

    ``topic`` and ``group`` are as brokers know them, ``name`` is what the application calls the topic.
    """
    fields = decode_fields(answer.ext_fields, RESPONSE_FIELDS[RequestCode.POP_MESSAGE])
    starts = parse_starts(str(fields.get("startOffsetInfo") or ""))
    counts = parse_counts(str(fields.get("orderCountInfo") or ""))
    found = []
    for stored in iter_records(answer.body or b""):
        carried = find(stored.properties, _POP_CK)
        if carried is not None:
            receipt = Receipt.parse(carried.decode("utf-8", "replace"))
        else:
            kind = topic_kind(stored.topic)
            start = starts.get((kind, stored.queue_id))
            if start is None:
                raise ProtocolError(f"the answer says nothing about queue {stored.queue_id} of {stored.topic}")
            pop_time, invisible, revive_queue = (
                int(str(fields[field])) for field in ("popTime", "invisibleTime", "reviveQid")
            )
            receipt = Receipt(
                start, pop_time, invisible, revive_queue, kind, broker_name, stored.queue_id, stored.queue_offset
            )
        if receipt.is_orderly:
            key = receipt.kind, f"qo{stored.queue_id}%{stored.queue_offset}"
            stored.reconsume_times = counts.get(key, counts.get((receipt.kind, str(stored.queue_id)), 0))
        popped_from = real_topic(topic, group, receipt.kind)
        records = split_record(stored) if is_inner_batch(stored.sys_flag) else (stored,)
        found += [PoppedMessage(record, broker_name, name, popped_from, receipt) for record in records]
    return found
