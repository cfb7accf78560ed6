"""A broker's registration at a name server (103): the JSON form and the compressed form of its body.

Compressed, the body is a zlib stream of: the data version as JSON; a count and that many topics, each a line of
text; the list of filter servers as JSON; and, from 5.0 on, a count and that many static topics as JSON. Every
piece has its length in front of it; lengths and counts are big-endian ints. A 5.x broker that compresses says in
the request header that it does not, so a reader should look at the first byte: ``is_compressed``.
"""

import dataclasses
import struct
import zlib
from dataclasses import field
from typing import Self

from orbitmq.protocol.bodies.codec import Body
from orbitmq.protocol.bodies.static_topics import TopicQueueMappingInfo
from orbitmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from orbitmq.protocol.bodies.version import DataVersion
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import dumps, loads

MAX_INFLATED_SIZE = 64 * 1024 * 1024
"""What a compressed body may grow to: several hundred thousand topics, and the most one request may cost."""

_INT = struct.Struct(">i")


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class RegisterBrokerBody(Body):
    """Registration of a broker: its topics, static topics, and filter servers (obsolete)."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = field(default_factory=list)

    @classmethod
    def decode_compressed(cls, data: bytes | bytearray | memoryview, *, limit: int = MAX_INFLATED_SIZE) -> Self:
        """Read the compressed form, allocating at most ``limit`` bytes for what it inflates to."""
        pieces = _Pieces(_inflate(data, limit))
        wrapper = TopicConfigAndMappingSerializeWrapper(data_version=DataVersion.decode(pieces.piece()))
        for _ in range(pieces.count()):
            topic = _topic_of_line(pieces.piece())
            wrapper.topic_config_table[topic.topic_name] = topic
        filter_servers = loads(pieces.piece())
        if not isinstance(filter_servers, list):
            raise ProtocolError("RegisterBrokerBody: filterServerList: expected an array")
        if not pieces.at_end():
            for _ in range(pieces.count()):
                mapping = TopicQueueMappingInfo.decode(pieces.piece())
                wrapper.topic_queue_mapping_info_map[mapping.topic] = mapping
        return cls(wrapper, [str(server) for server in filter_servers])

    def encode_compressed(self, *, with_attributes: bool = True, with_mappings: bool = True) -> bytes:
        """Write the compressed form; a name server before 5.0 wants neither attributes nor mappings."""
        wrapper = self.topic_config_serialize_wrapper
        topics = wrapper.topic_config_table.values()
        parts: list[int | bytes] = [wrapper.data_version.encode(), len(topics)]
        parts += [_line_of_topic(topic, with_attributes=with_attributes) for topic in topics]
        parts.append(dumps(self.filter_server_list))
        if with_mappings:
            mappings = wrapper.topic_queue_mapping_info_map.values()
            parts += [len(mappings), *(mapping.encode() for mapping in mappings)]
        plain = b"".join(
            _INT.pack(part) if isinstance(part, int) else _INT.pack(len(part)) + part for part in parts
        )
        # Level 9 is Java's BEST_COMPRESSION.
        return zlib.compress(plain, 9)


def is_compressed(body: bytes | bytearray | memoryview) -> bool:
    """True if a registration is compressed: JSON never begins with zlib's first byte."""
    return len(body) > 0 and body[0] == 0x78


class _Pieces:
    """Reads counts and length-prefixed pieces off the front of the inflated bytes."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def at_end(self) -> bool:
        return self._position >= len(self._data)

    def count(self) -> int:
        if len(self._data) - self._position < _INT.size:
            raise ProtocolError("RegisterBrokerBody: the compressed form ends too early")
        (number,) = _INT.unpack_from(self._data, self._position)
        self._position += _INT.size
        # Nothing that follows is shorter than a byte, so no count and no length can exceed what is left.
        if not 0 <= number <= len(self._data) - self._position:
            raise ProtocolError(f"RegisterBrokerBody: {number} pieces or bytes announced, fewer there")
        return int(number)

    def piece(self) -> bytes:
        size = self.count()
        start = self._position
        self._position = start + size
        return self._data[start : self._position]


def _inflate(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, limit)
        if not stream.eof and stream.decompress(stream.unconsumed_tail, 1):
            raise ProtocolError(f"RegisterBrokerBody inflates to more than {limit} bytes")
    except zlib.error as error:
        raise ProtocolError(f"RegisterBrokerBody is no zlib stream: {error}") from None
    if not stream.eof:
        raise ProtocolError("RegisterBrokerBody: the zlib stream is cut off")
    return plain


def _line_of_topic(topic: TopicConfig, *, with_attributes: bool) -> bytes:
    text = (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
        f" {topic.topic_filter_type.name}"
    )
    line = text.encode("utf-8", "replace")
    return line + b" " + dumps(topic.attributes) if with_attributes else line


def _topic_of_line(line: bytes) -> TopicConfig:
    """``name read write perm filter attributes``; lines of 4.x end before the attributes."""
    words = line.decode("utf-8", "replace").split(" ", 5)
    if len(words) < 5:
        raise ProtocolError(f"RegisterBrokerBody: no topic in {line[:60]!r}")
    name, read, write, perm, filter_type, *rest = words
    return TopicConfig.from_json(
        {
            "topicName": name,
            "readQueueNums": read,
            "writeQueueNums": write,
            "perm": perm,
            "topicFilterType": filter_type,
            "attributes": loads(rest[0]) if rest and rest[0] else None,
        }
    )
