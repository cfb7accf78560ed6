"""Popped messages with their receipts, and the parser of pop responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.message import ReceivedMessage
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.response_fields import RESPONSE_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import is_inner_batch, split_record
from orbitmq.protocol.message.pop_receipt import Receipt, parse_counts, parse_starts, real_topic, topic_kind
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import iter_records

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.message.record import Record

_POP_CK = names.POP_CHECKPOINT.encode()


class PoppedMessage(ReceivedMessage):
    """A message that is invisible to the rest of the group until ``invisible_until`` or its acknowledgement."""

    __slots__ = ("popped_from", "receipt")

    def __init__(self, record: Record, broker_name: str, topic: str, popped_from: str, receipt: Receipt) -> None:
        super().__init__(record, broker_name, topic)
        self.popped_from = popped_from
        """The topic it was popped from, with namespace: the retry topic for a redelivery."""
        self.receipt = receipt

    @property
    def invisible_until(self) -> float:
        """When it becomes visible to others, in seconds since 1970 by the broker's clock."""
        return (self.receipt.pop_time + self.receipt.invisible_ms) / 1000


def popped_messages(answer: Command, broker_name: str, topic: str, group: str, name: str) -> list[PoppedMessage]:
    """The messages of a pop response. Raises ProtocolError.

    ``topic`` and ``group`` have the namespace, ``name`` is the topic without it.
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
                raise ProtocolError(
                    f"pop response without the start offset of queue {stored.queue_id} of {stored.topic}"
                )
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
