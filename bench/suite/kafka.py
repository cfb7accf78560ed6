"""Apache Kafka as a system of the suite: one node with a heap of 1 GiB, and topics with a number of partitions."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from bench.server.systems import QUEUES, Server
from bench.suite.scenario import System
from peers import kafka
from peers.ports import endpoint
from peers.process import PeerError

if TYPE_CHECKING:
    from pathlib import Path

# The oldest versions that Kafka 4 still takes: their layout is fixed and has no tagged fields.
_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 1
_CREATE_TOPICS, _CREATE_TOPICS_VERSION = 19, 2

_TOPIC_EXISTS = 36
_LATEST = -1
_ANSWER_SECONDS = 30
_LEADER_SECONDS = 30


class KafkaServer(Server):
    """A running Kafka."""

    def make_topic(self, topic: str, queues: int = QUEUES) -> None:
        """Make a topic with so many partitions, if there is none, and wait until they take messages."""
        code = created(_ask(self.address, _CREATE_TOPICS, _CREATE_TOPICS_VERSION, create_topic(topic, queues)))
        if code not in (0, _TOPIC_EXISTS):
            raise PeerError(f"{self.name} made no topic: error {code}")
        question = list_offsets(topic, queues)
        self._broker.wait_until(
            lambda: not any(errors(_ask(self.address, _LIST_OFFSETS, _LIST_OFFSETS_VERSION, question))),
            what=f"leading all partitions of {topic}",
            seconds=_LEADER_SECONDS,
        )


def unavailable() -> str | None:
    """None if Kafka can be run here, otherwise the reason in one sentence. It fetches it."""
    return kafka.unavailable()


def start_kafka(home: Path) -> Server:
    """Kafka with its defaults: it writes to the page cache, and the operating system writes that to the disk."""
    peer = kafka.Kafka(home, QUEUES)
    return KafkaServer(System.KAFKA.title, [peer.process], "", peer.address)


def create_topic(topic: str, partitions: int) -> bytes:
    """The body of a request to create a topic: one replica, no assignments and no settings."""
    one = _text(topic) + struct.pack(">ihii", partitions, 1, 0, 0)
    return struct.pack(">i", 1) + one + struct.pack(">ib", _ANSWER_SECONDS * 1000, False)


def created(answer: bytes) -> int:
    """The error of the one topic that was to be made, 0 if there is none."""
    _throttled, _count, length = struct.unpack_from(">iih", answer)
    (code,) = struct.unpack_from(">h", answer, 10 + length)
    return int(code)


def list_offsets(topic: str, partitions: int) -> bytes:
    """The body of a request for the next offset of each partition; only their leader knows them."""
    partitions_body = b"".join(struct.pack(">iq", number, _LATEST) for number in range(partitions))
    return struct.pack(">ii", -1, 1) + _text(topic) + struct.pack(">i", partitions) + partitions_body


def errors(answer: bytes) -> list[int]:
    """The error of each partition in a response with offsets."""
    _count, length = struct.unpack_from(">ih", answer)
    (partitions,) = struct.unpack_from(">i", answer, 6 + length)
    return [code for _, code, _, _ in struct.iter_unpack(">ihqq", answer[10 + length :][: 22 * partitions])]


def _ask(address: str, kind: int, version: int, body: bytes) -> bytes:
    """The response to one request, without its correlation id."""
    request = struct.pack(">hhi", kind, version, 0) + _text("bench") + body
    with socket.create_connection(endpoint(address), timeout=_ANSWER_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", _exactly(stream.read(4), 4))
            return _exactly(stream.read(size), size)[4:]


def _exactly(got: bytes, size: int) -> bytes:
    if len(got) != size:
        raise PeerError(f"Kafka closed a connection after {len(got)} bytes of an answer of {size}")
    return got


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded
