"""Fast-path encoder: responses to sends and pulls, made by filling in prepared bytes.

Both come out byte for byte as Java writes them, the order of the fields included. Answers of another shape
(failures, batches) are rare enough for ``Command.encode``.
"""

from __future__ import annotations

import re
import struct

import orjson

from orbitmq.protocol.codes import LanguageCode, SerializeType
from orbitmq.protocol.command.frame import FRAME_PREFIX
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message.flags import RESPONSE
from orbitmq.protocol.versions import CURRENT_VERSION

_BINARY = int(SerializeType.ROCKETMQ) << 24
_BINARY_START = struct.Struct(">iIhBhiiI")
"""The prefix of the frame, then code, language, version, opaque, flag and the length of the remark."""
_BINARY_START_HEADER = _BINARY_START.size - FRAME_PREFIX.size

_SIZES = tuple(size.to_bytes(4, "big") for size in range(256))


def _size(data: bytes) -> bytes:
    size = len(data)
    return _SIZES[size] if size < 256 else size.to_bytes(4, "big")


def _binary_key(name: bytes) -> bytes:
    return len(name).to_bytes(2, "big") + name


def _binary_field(name: bytes, value: bytes) -> bytes:
    """A constant field, with its percent signs escaped for formatting."""
    return (_binary_key(name) + _size(value) + value).replace(b"%", b"%%")


def _binary_place(name: bytes) -> bytes:
    """A field with placeholders for the size and the bytes of its value."""
    return _binary_key(name) + b"%b%b"


class SendAnswers:
    """Responses of one broker to sends: the codes of a stored message, and its position."""

    __slots__ = ("_binary", "_binary_timed", "_json", "_json_timed", "_told", "language", "version")

    def __init__(
        self,
        *,
        store_host: bytes,
        region: str,
        trace_on: bool,
        language: LanguageCode = LanguageCode.JAVA,
        version: int = CURRENT_VERSION,
    ) -> None:
        """``store_host`` is the address and port in the format of records, and the first part of a message id."""
        host = store_host.hex().upper().encode()
        trace = b"true" if trace_on else b"false"
        self.language = int(language)
        self.version = version
        self._told = region, trace, language
        json = (
            b'{"code":%d,"extFields":{"queueId":"%d","transactionId":"%b","msgId":"',
            host,
            b'%016X","TRACE_ON":"',
            trace,
            b'","MSG_REGION":',
            orjson.dumps(region).replace(b"%", b"%%"),
        )
        json_end = (
            b',"queueOffset":"%d"},"flag":1,"language":"',
            language.name.encode(),
            b'","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":',
            b"%d}" % version,
        )
        self._json = b"".join((*json, *json_end))
        self._json_timed = b"".join((*json, b',"recallHandle":"%b"', *json_end))
        binary = (
            _binary_key(b"msgId"),
            _SIZES[len(host) + 16],
            host,
            b"%016X",
            _binary_place(b"queueId"),
            _binary_place(b"queueOffset"),
            _binary_place(b"transactionId"),
        )
        binary_end = _binary_field(b"TRACE_ON", trace), _binary_field(b"MSG_REGION", region.encode())
        self._binary = b"".join((*binary, *binary_end))
        self._binary_timed = b"".join((*binary, _binary_place(b"recallHandle"), *binary_end))

    @property
    def json_parts(self) -> tuple[bytes, ...]:
        """The text around the placeholders of a JSON header: code, queue id, unique key, the offset as 16
        hexadecimal digits, queue offset and opaque.
        """
        return _around_places(self._json)

    @property
    def binary_parts(self) -> tuple[bytes, ...]:
        """The bytes around the placeholders in the fields of a binary header: the offset as 16 hexadecimal digits,
        then sizes and values of queue id, queue offset and unique key.
        """
        return _around_places(self._binary)

    @property
    def timed_json_parts(self) -> tuple[bytes, ...]:
        """The JSON parts with a recall handle in front of the queue offset."""
        return _around_places(self._json_timed)

    @property
    def timed_binary_parts(self) -> tuple[bytes, ...]:
        """The binary parts with size and value of a recall handle behind the unique key."""
        return _around_places(self._binary_timed)

    @property
    def batch_json(self) -> tuple[bytes, ...]:
        """The start of the JSON header of a batch response, and the text around the opaque."""
        region, trace, language = self._told
        return (
            b'{"code":0,"extFields":{"MSG_REGION":%b,"TRACE_ON":"%b"' % (orjson.dumps(region), trace),
            b',"flag":1,"language":"%b","opaque":' % language.name.encode(),
            b',"serializeTypeCurrentRPC":"JSON","version":%d}' % self.version,
        )

    @property
    def batch_binary(self) -> bytes:
        """The first fields of the binary header of a batch response."""
        region, trace, _ = self._told
        fields = _binary_field(b"MSG_REGION", region.encode()) + _binary_field(b"TRACE_ON", trace)
        return fields.replace(b"%%", b"%")

    def encode(
        self,
        serialize_type: int,
        opaque: int,
        code: int,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        transaction_id: bytes,
    ) -> bytes:
        """The whole frame. ``transaction_id`` is the unique key of the message."""
        if serialize_type:
            return self._encode_binary(opaque, code, queue_id, queue_offset, physical_offset, transaction_id)
        if not transaction_id.isalnum():
            # The unique key is the client's; it may hold what JSON must escape.
            transaction_id = orjson.dumps(decode_utf8(transaction_id))[1:-1]
        header = self._json % (code, queue_id, transaction_id, physical_offset, queue_offset, opaque)
        size = len(header)
        return FRAME_PREFIX.pack(size + 4, size) + header

    def encode_timed(
        self,
        serialize_type: int,
        opaque: int,
        code: int,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        transaction_id: bytes,
        handle: bytes,
    ) -> bytes:
        """The whole frame for a deferred message, with its recall handle."""
        if serialize_type:
            return self._encode_binary(
                opaque, code, queue_id, queue_offset, physical_offset, transaction_id, handle
            )  # fmt: skip
        if not transaction_id.isalnum():
            transaction_id = orjson.dumps(decode_utf8(transaction_id))[1:-1]
        header = self._json_timed % (code, queue_id, transaction_id, physical_offset, handle, queue_offset, opaque)
        size = len(header)
        return FRAME_PREFIX.pack(size + 4, size) + header

    def _encode_binary(
        self,
        opaque: int,
        code: int,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        transaction_id: bytes,
        handle: bytes = b"",
    ) -> bytes:
        queue = b"%d" % queue_id
        offset = b"%d" % queue_offset
        sizes_and_values = (
            physical_offset,
            _SIZES[len(queue)],
            queue,
            _SIZES[len(offset)],
            offset,
            _size(transaction_id),
            transaction_id,
        )
        if handle:
            fields = self._binary_timed % (*sizes_and_values, _size(handle), handle)
        else:
            fields = self._binary % sizes_and_values
        return _binary_frame(code, self.language, self.version, opaque, b"", fields, 0)


class PullAnswers:
    """Responses to pulls with the offsets of the queue, with or without messages."""

    __slots__ = ("_binary", "_json", "language", "version")

    def __init__(self, *, language: LanguageCode = LanguageCode.JAVA, version: int = CURRENT_VERSION) -> None:
        self.language = int(language)
        self.version = version
        self._json = b"".join(
            (
                b'{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","groupSysFlag":"%d",',
                b'"nextBeginOffset":"%d","maxOffset":"%d","minOffset":"%d","topicSysFlag":"%d"},',
                b'"flag":1,"language":"',
                language.name.encode(),
                b'","opaque":%d,"remark":"%b","serializeTypeCurrentRPC":"JSON","version":',
                b"%d}" % version,
            )
        )
        self._binary = b"".join(
            _binary_place(name)
            for name in (
                *(b"suggestWhichBrokerId", b"nextBeginOffset", b"minOffset", b"maxOffset"),
                *(b"topicSysFlag", b"groupSysFlag"),
            )
        )

    @property
    def json_parts(self) -> tuple[bytes, ...]:
        """The text around the placeholders of a JSON header: code, suggested broker, flags of the group, next
        offset, greatest and smallest offset, flags of the topic, opaque and status.
        """
        return _around_places(self._json)

    @property
    def binary_parts(self) -> tuple[bytes, ...]:
        """The bytes around the placeholders in the fields of a binary header: sizes and values of suggested broker,
        next offset, smallest and greatest offset, flags of the topic and of the group.
        """
        return _around_places(self._binary)

    def encode_head(
        self,
        serialize_type: int,
        opaque: int,
        code: int,
        status: bytes,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        body_size: int,
        *,
        suggest_broker_id: int = 0,
        topic_sys_flag: int = 0,
        group_sys_flag: int = 0,
    ) -> bytes:
        """The frame up to its body, which the caller sends after it without a copy.

        ``status`` is the name of the result, such as ``FOUND``: letters and underscores.
        """
        if serialize_type:
            numbers = (
                *(suggest_broker_id, next_begin_offset, min_offset, max_offset),
                *(topic_sys_flag, group_sys_flag),
            )
            parts: list[bytes] = []
            for number in numbers:
                text = b"%d" % number
                parts += (_size(text), text)
            fields = self._binary % tuple(parts)
            return _binary_frame(code, self.language, self.version, opaque, status, fields, body_size)
        header = self._json % (
            code,
            suggest_broker_id,
            group_sys_flag,
            next_begin_offset,
            max_offset,
            min_offset,
            topic_sys_flag,
            opaque,
            status,
        )
        size = len(header)
        return FRAME_PREFIX.pack(size + 4 + body_size, size) + header


def _around_places(template: bytes) -> tuple[bytes, ...]:
    return tuple(part.replace(b"%%", b"%") for part in re.split(rb"(?<!%)%(?:016X|[db])", template))


def _binary_frame(
    code: int, language: int, version: int, opaque: int, remark: bytes, fields: bytes, body_size: int
) -> bytes:
    remark_size = len(remark)
    size = _BINARY_START_HEADER + remark_size + 4 + len(fields)
    start = _BINARY_START.pack(
        size + 4 + body_size, _BINARY | size, code, language, version, opaque, RESPONSE, remark_size
    )
    return b"".join((start, remark, _size(fields), fields))
