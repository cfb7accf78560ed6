"""Popped messages: the records of a pop response with their receipt handles."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.response_fields import RESPONSE_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import is_inner_batch, split_record
from orbitmq.protocol.message.pop_receipt import Receipt, parse_counts, parse_starts, real_topic, topic_kind
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import iter_records
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.message.record import Record

_LITE_TOPIC = names.LITE_TOPIC.encode()
_LIGHT_OFFSET = names.INNER_MULTI_QUEUE_OFFSET.encode()


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """A receipt handle: the receipt of a pop, and where the message is in the log (-1 if that is not known)."""

    receipt: Receipt
    physical_offset: int = -1
    lite_topic: str = ""
    """That of the message, if it has one. Not part of the text: clients send it beside it."""

    @classmethod
    def parse(cls, text: str, lite_topic: str = "") -> Handle:
        """Raises StatusError."""
        parts = text.split(" ")
        try:
            if len(parts) < 8:
                raise ProtocolError(f"{text[:200]!r} is not a receipt handle")
            return cls(Receipt.parse(text), int(parts[8]) if len(parts) > 8 else -1, lite_topic)
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
        fields = {
            "consumerGroup": group,
            "topic": popped_from,
            "queueId": str(receipt.queue_id),
            "offset": str(receipt.offset),
            "extraInfo": str(receipt),
            "bname": receipt.broker_name,
        }
        if self.lite_topic:
            fields["liteTopic"] = self.lite_topic
        return fields


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


def popped_lite(response: Command, topic: str, broker_name: str) -> list[tuple[Record, Handle]]:
    """The messages of a pop of lite topics, whose offsets are those in their light queues. Raises ProtocolError."""
    fields = decode_fields(response.ext_fields, RESPONSE_FIELDS[RequestCode.POP_LITE_MESSAGE])
    pop_time, invisible, revive_queue = (
        int(str(fields[field])) for field in ("popTime", "invisibleTime", "reviveQid")
    )
    counts = str(fields.get("orderCountInfo") or "").split(";")
    records = list(iter_records(response.body or b""))
    found = []
    for number, record in enumerate(records):
        lite_topic, offset = (find(record.properties, name) or b"" for name in (_LITE_TOPIC, _LIGHT_OFFSET))
        if not lite_topic or not offset.isdigit():
            raise ProtocolError(f"pop response with a message of {topic} that is of no lite topic")
        if len(counts) == len(records):
            # Apache's brokers answer "0 qo0%<offset> <count>" too.
            count = counts[number].rpartition(" ")[2]
            record.reconsume_times = int(count) if count.isdigit() else 0
        record.queue_id, record.queue_offset = 0, int(offset)
        receipt = Receipt(
            0, pop_time, invisible, revive_queue, topic_kind(topic), broker_name, 0, record.queue_offset
        )
        found.append((record, Handle(receipt, record.physical_offset, decode_utf8(lite_topic))))
    return found
