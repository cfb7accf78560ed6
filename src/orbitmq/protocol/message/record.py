"""The message record: one layout for the commit log, for pull answers and for check-backs.

All integers are big-endian. Offsets are for IPv4 hosts; each IPv6 host adds 12 bytes.

======  ====  ==========================================================================
offset  size  field
======  ====  ==========================================================================
0       4     total size, these four bytes included
4       4     magic: v1 (topic length is one byte), v2 (two bytes), or the end-of-file blank
8       4     CRC-32 of the stored body, sign bit cleared
12      4     queue id
16      4     flag, the user's own
20      8     queue offset
28      8     physical offset in the commit log
36      4     sysFlag
40      8     born timestamp
48      8     born host: address and port
56      8     store timestamp
64      8     store host
72      4     reconsume times
76      8     prepared transaction offset
84      4     body length, then the body
..      1, 2  topic length, then the topic
..      2     properties length, then the properties
======  ====  ==========================================================================
"""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.crc import MASK, crc32
from orbitmq.protocol.message.flags import BORN_HOST_V6, STORE_HOST_V6

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

    Readable = bytes | bytearray | memoryview | mmap.mmap

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
_MAGICS = frozenset({MAGIC_V1, MAGIC_V2})
MAGIC_BLANK = 0xCBD43194

BLANK_SIZE = 8
"""A file always keeps this many bytes for the blank record that ends it."""


QUEUE_OFFSET_AT = 20
PHYSICAL_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_TIMESTAMP_AT = 40

HEADS: tuple[struct.Struct, ...] = tuple(
    struct.Struct(f">iIIiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
"""The fixed part up to and including the body length, by ``sysFlag >> 4 & 3`` (which hosts are IPv6)."""

_START = struct.Struct(">iI")
_BLANK = struct.Struct(">iI")
_LONG = struct.Struct(">q")

MIN_RECORD_SIZE = 91
"""The smallest record: IPv4 hosts, v1, no body, no topic, no properties."""

MAX_PROPERTIES_SIZE = 32767
MAX_TOPIC_SIZE_V1 = 127
MAX_TOPIC_SIZE_V2 = 32767
"""Lengths are signed: RocketMQ takes a record whose topic length has the top bit set for a broken one."""

CRC_PROPERTY = b"__CRC32#"
CRC_PROPERTY_SIZE = len(CRC_PROPERTY) + 1 + 10 + 1


def head_fields(born: int, store: int) -> list[tuple[str, str]]:
    """The fixed part of a record, whose hosts take so many bytes; the size of the body is the last of it."""
    return [
        ("size", ">i4"), ("magic", ">u4"), ("crc", ">u4"), ("queue_id", ">i4"), ("flag", ">i4"),
        ("queue_offset", ">i8"), ("physical_offset", ">i8"), ("sys_flag", ">i4"), ("born_timestamp", ">i8"),
        ("born_host", f"V{born}"), ("store_timestamp", ">i8"), ("store_host", f"V{store}"),
        ("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_size", ">i4"),
    ]  # fmt: skip


@dataclasses.dataclass(slots=True)
class Record:
    """A decoded record. For tools and clients; the broker's path works on the bytes."""

    physical_offset: int
    size: int
    magic: int
    topic: str
    queue_id: int
    queue_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes
    properties: bytes

    @property
    def body_is_intact(self) -> bool:
        """True if the stored CRC is that of the stored body."""
        return crc32(self.body) & MASK == self.body_crc


def topic_field(topic: bytes, *, version_2: bool = False) -> bytes:
    """The topic with its length in front, as it stands in a record of this version."""
    if len(topic) > (MAX_TOPIC_SIZE_V2 if version_2 else MAX_TOPIC_SIZE_V1):
        version = 2 if version_2 else 1
        raise ProtocolError(f"topic of {len(topic)} bytes does not fit a version {version} record")
    return len(topic).to_bytes(2 if version_2 else 1, "big") + topic


def encode_record(
    *,
    topic: bytes,
    queue_id: int,
    body: bytes | memoryview,
    properties: bytes = b"",
    queue_offset: int = 0,
    physical_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: bytes,
    store_timestamp: int = 0,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    version_2: bool = False,
    crc_property: bool = False,
) -> bytes:
    """Encode one record. The host bits of ``sys_flag`` are set from the lengths of the hosts.

    ``crc_property`` appends the ``__CRC32#`` property, which covers the whole record but itself.
    """
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if len(born_host) == 20:
        sys_flag |= BORN_HOST_V6
    elif len(born_host) != 8:
        raise ProtocolError(f"born host of {len(born_host)} bytes, it has 8 or 20")
    if len(store_host) == 20:
        sys_flag |= STORE_HOST_V6
    elif len(store_host) != 8:
        raise ProtocolError(f"store host of {len(store_host)} bytes, it has 8 or 20")
    if crc_property and properties and properties[-1] != 2:
        properties += b"\x02"
    properties_size = len(properties) + (CRC_PROPERTY_SIZE if crc_property else 0)
    if properties_size > MAX_PROPERTIES_SIZE:
        raise ProtocolError(f"properties of {properties_size} bytes, at most {MAX_PROPERTIES_SIZE}")
    head = HEADS[sys_flag >> 4 & 3]
    named = topic_field(topic, version_2=version_2)
    size = head.size + len(body) + len(named) + 2 + properties_size
    record = b"".join(
        (
            head.pack(
                size,
                MAGIC_V2 if version_2 else MAGIC_V1,
                crc32(body) & MASK,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                len(body),
            ),
            body,
            named,
            properties_size.to_bytes(2, "big"),
            properties,
        )
    )
    return record + crc_property_of(record) if crc_property else record


def crc_property_of(record: bytes | memoryview) -> bytes:
    """The ``__CRC32#`` property for a record that ends where this property goes.

    The ten digits stand least significant first, which is how RocketMQ writes them.
    """
    digits = f"{crc32(record) & MASK:010d}"[::-1]
    return CRC_PROPERTY + b"\x01" + digits.encode() + b"\x02"


def blank(size: int) -> bytes:
    """The record that ends a file: the length of the rest of the file and the blank magic."""
    return _BLANK.pack(size, MAGIC_BLANK)


def decode_record(buffer: Readable, position: int = 0, end: int | None = None) -> Record:
    """Decode the record at ``position``; it must end at or before ``end``. The CRC is not checked."""
    limit = len(buffer) if end is None else min(end, len(buffer))
    if position < 0 or limit - position < MIN_RECORD_SIZE:
        raise ProtocolError(f"{max(limit - position, 0)} bytes are too few for a record")
    size, magic = _START.unpack_from(buffer, position)
    if magic not in _MAGICS:
        raise ProtocolError(f"0x{magic:08X} is not the magic of a record")
    if size < MIN_RECORD_SIZE or size > limit - position:
        raise ProtocolError(f"record size {size} does not fit in {limit - position} bytes")
    # Pieces of bytes are made several times faster than those of a view, and copying all costs less than one.
    data = bytes(buffer[position : position + size])
    head = HEADS[data[SYS_FLAG_AT + 3] >> 4 & 3]
    if head.size > size:
        raise ProtocolError(f"record size {size} is less than its fixed part")
    (
        _,
        _,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared,
        body_size,
    ) = head.unpack_from(data)
    body_at = head.size
    topic_at = body_at + body_size + (1 if magic == MAGIC_V1 else 2)
    if body_size < 0 or topic_at > size:
        raise ProtocolError(f"body size {body_size} does not fit the record")
    topic_size = int.from_bytes(data[body_at + body_size : topic_at], "big", signed=True)
    properties_at = topic_at + topic_size + 2
    if topic_size < 0 or properties_at > size:
        raise ProtocolError(f"topic size {topic_size} does not fit the record")
    properties_size = int.from_bytes(data[properties_at - 2 : properties_at], "big", signed=True)
    if properties_at + properties_size != size:
        raise ProtocolError(f"fields end {size - properties_at - properties_size} bytes off the size")
    try:
        topic = str(data[topic_at : topic_at + topic_size], "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("topic is not UTF-8") from error
    # In the order of the fields: naming all of them takes longer than to read them.
    return Record(
        physical_offset,
        size,
        magic,
        topic,
        queue_id,
        queue_offset,
        flag,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared,
        crc,
        data[body_at : body_at + body_size],
        data[properties_at:],
    )


def iter_records(buffer: Readable) -> Iterator[Record]:
    """Decode records that follow each other without a gap, as in the body of a pull answer."""
    position = 0
    while position < len(buffer):
        record = decode_record(buffer, position)
        yield record
        position += record.size


def properties_of(record: memoryview) -> bytes:
    """The properties of a whole, intact record, and nothing else of it."""
    head_size = HEADS[record[SYS_FLAG_AT + 3] >> 4 & 3].size
    topic_at = head_size + int.from_bytes(record[head_size - 4 : head_size], "big")
    if record[7] == MAGIC_V1 & 0xFF:
        properties_at = topic_at + 3 + record[topic_at]
    else:
        properties_at = topic_at + 4 + int.from_bytes(record[topic_at : topic_at + 2], "big")
    return bytes(record[properties_at:])


def store_timestamp_at(sys_flag: int) -> int:
    """Where the store timestamp stands in a record with this sysFlag."""
    return 68 if sys_flag & BORN_HOST_V6 else 56
