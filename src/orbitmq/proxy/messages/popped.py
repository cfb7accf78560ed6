"""Popped messages: the records of a pop response with their receipt handles."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.response_fields import RESPONSE_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.batch import is_inner_batch, split_record
from orbitmq.protocol.message.pop_receipt import Receipt, parse_counts, parse_starts, real_topic, topic_kind
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import iter_records
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.message.record import Record


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """A receipt handle: the receipt of a pop, and where the message is in the log (-1 if that is not known)."""

    receipt: Receipt
    physical_offset: int = -1

    @classmethod
    def parse(cls, text: str) -> Handle:
        """Raises StatusError."""
        parts = text.split(" ")
        try:
            if len(parts) < 8:
                raise ProtocolError(f"{text[:200]!r} is not a receipt handle")
            return cls(Receipt.parse(text), int(parts[8]) if len(parts) > 8 else -1)
        except (ProtocolError, ValueError) as error:
            raise StatusError(pb.INTERNAL_SERVER_ERROR, f"receipt handle is invalid: {error}") from None

    def __str__(self) -> str:
        return f"{self.receipt} {self.physical_offset}"

    @property
    def visible_ms(self) -> int:
        """When the message becomes visible again, by the broker's clock."""
        return self.receipt.pop_time + self.receipt.invisible_ms

    def fields(self, topic: str, group: str) -> dict[str, str]:
        """Header fields of a request for the message. ``topic`` is the one that was subscribed to."""
        receipt = self.receipt
        try:
            popped_from = real_topic(topic, group, receipt.kind)
        except ProtocolError as error:
            raise StatusError(pb.INTERNAL_SERVER_ERROR, f"receipt handle is invalid: {error}") from None
        return {
            "consumerGroup": group,
            "topic": popped_from,
            "queueId": str(receipt.queue_id),
            "offset": str(receipt.offset),
            "extraInfo": str(receipt),
            "bname": receipt.broker_name,
        }


def popped(response: Command, broker_name: str) -> list[tuple[Record, Handle]]:
    """The messages of a pop response. Raises ProtocolError."""
    fields = decode_fields(response.ext_fields, RESPONSE_FIELDS[RequestCode.POP_MESSAGE])
    starts = parse_starts(str(fields.get("startOffsetInfo") or ""))
    counts = parse_counts(str(fields.get("orderCountInfo") or ""))
    found = []
    for stored in iter_records(response.body or b""):
        carried = find(stored.properties, b"POP_CK")
        if carried is not None:
            receipt = Receipt.parse(carried.decode("utf-8", "replace"))
        else:
            kind = topic_kind(stored.topic)
            start = starts.get((kind, stored.queue_id))
            if start is None:
                raise ProtocolError(f"pop response without the start offset of queue {stored.queue_id}")
            pop_time, invisible, revive_queue = (
                int(str(fields[field])) for field in ("popTime", "invisibleTime", "reviveQid")
            )
            receipt = Receipt(
                start, pop_time, invisible, revive_queue, kind, broker_name, stored.queue_id, stored.queue_offset
            )
        if receipt.is_orderly:
            key = receipt.kind, f"qo{stored.queue_id}%{stored.queue_offset}"
            stored.reconsume_times = counts.get(key, counts.get((receipt.kind, str(stored.queue_id)), 0))
        handle = Handle(receipt, stored.physical_offset)
        records = split_record(stored) if is_inner_batch(stored.sys_flag) else (stored,)
        found += [(record, handle) for record in records]
    return found
