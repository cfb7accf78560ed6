"""Messages of a pull response, decoded lazily.

Most handlers read the body and perhaps a tag. Decoding a whole record takes several times as long.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from orbitmq.client.message import ReceivedMessage
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.batch import is_inner_batch, split_record
from orbitmq.protocol.message.compression import decompress
from orbitmq.protocol.message.flags import COMPRESSED
from orbitmq.protocol.message.record import HEADS, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, Record, decode_record

if TYPE_CHECKING:
    from collections.abc import Callable

_START = struct.Struct(">iI12xq8xi")
"""Size, magic, queue offset and sysFlag of a record."""

_INT = struct.Struct(">i")


class PulledMessage(ReceivedMessage):
    """A message from a broker. ``stored_size`` is its size in the log."""

    __slots__ = ("_at", "_data", "_record", "_sys_flag", "offset", "stored_size")

    def __init__(
        self, data: bytes, at: int, size: int, offset: int, sys_flag: int, broker: str, topic: str
    ) -> None:
        # Skips the parent's constructor, which needs the decoded record.
        self._data = data
        self._at = at
        self._sys_flag = sys_flag
        self._record: Record | None = None
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None
        self.offset = offset
        self.stored_size = size
        self.broker_name = broker
        self.topic = topic

    @classmethod
    def of_record(cls, record: Record, broker: str, topic: str) -> PulledMessage:
        """A message of a decoded record, such as one of an inner batch."""
        message = cls(b"", 0, len(record.body), record.queue_offset, record.sys_flag, broker, topic)
        message._record = record
        return message

    @property
    def record(self) -> Record:
        if self._record is None:
            self._record = decode_record(self._data, self._at, self._at + self.stored_size)
        return self._record

    @record.setter
    def record(self, record: Record) -> None:
        self._record = record

    @property
    def body(self) -> bytes:
        if self._body is None:
            self._body = (
                decompress(self._raw_body(), self._sys_flag) if self._sys_flag & COMPRESSED else self._raw_body()
            )
        return self._body

    def _raw_body(self) -> bytes:
        if self._record is not None:
            return self._record.body
        start = self._at + HEADS[self._sys_flag >> 4 & 3].size
        (size,) = _INT.unpack_from(self._data, start - 4)
        end = start + size
        if size < 0 or end > self._at + self.stored_size:
            raise ProtocolError(f"body size {size} does not fit the record")
        return self._data[start:end]

    @property
    def queue_offset(self) -> int:
        return self.offset

    @property
    def stored_properties(self) -> bytes:
        """The stored properties, without decoding the rest."""
        if self._record is not None:
            return self._record.properties
        data, end = self._data, self._at + self.stored_size
        head = self._at + HEADS[self._sys_flag >> 4 & 3].size
        (body_size,) = _INT.unpack_from(data, head - 4)
        topic_at = head + body_size
        if body_size < 0 or topic_at + 4 > end:
            raise ProtocolError(f"body size {body_size} does not fit the record")
        if data[self._at + 7] == MAGIC_V1 & 0xFF:
            properties_at = topic_at + 3 + data[topic_at]
        else:
            properties_at = topic_at + 4 + int.from_bytes(data[topic_at : topic_at + 2], "big")
        return data[properties_at:end]


def pulled_messages(data: bytes, broker: str, topic: str, first_offset: int, delta: int = 0) -> list[PulledMessage]:
    """The messages of a pull response. Messages of a batch before ``first_offset`` are left out.

    ``delta`` is what a static topic adds to the offsets of this broker. Raises ProtocolError.
    """
    found: list[PulledMessage] = []
    add: Callable[[PulledMessage], None] = found.append
    read = _START.unpack_from
    at, end = 0, len(data)
    while at < end:
        if end - at < MIN_RECORD_SIZE:
            raise ProtocolError(f"{end - at} bytes are too few for a record")
        size, magic, offset, sys_flag = read(data, at)
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise ProtocolError(f"0x{magic:08X} is not the magic of a record")
        if not MIN_RECORD_SIZE <= size <= end - at:
            raise ProtocolError(f"record size {size} does not fit in {end - at} bytes")
        if sys_flag & 0xC0 and is_inner_batch(sys_flag):
            for record in split_record(decode_record(data, at, at + size)):
                if record.queue_offset >= first_offset:
                    record.queue_offset += delta
                    add(PulledMessage.of_record(record, broker, topic))
        else:
            add(PulledMessage(data, at, size, offset + delta, sys_flag, broker, topic))
        at += size
    return found
