"""One connection to a broker, for looking at it while it works: offsets, timers, how long a send takes."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import IO, TYPE_CHECKING, Any, Self

from bench.server.systems import QUEUES
from peers.ports import endpoint
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.server.systems import Server

SEND_MESSAGE_V2 = 310
GET_BROKER_RUNTIME_INFO = 28
GET_MAX_OFFSET = 30
UPDATE_CONSUMER_OFFSET = 15
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
PROBED_TOPIC = "Bench-probed"

_PATIENCE_SECONDS = 60
_AT_ONCE = 500
_BODY = bytes(128)


class Talk:
    """A connection with one request in flight at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._socket = socket.create_connection(endpoint(server.address), timeout=_PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream: IO[bytes] = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def offsets(self, topic: str, queues: int = QUEUES) -> list[int]:
        """The maximum offset of each queue of a topic, some hundred requested at once."""
        found: list[int] = []
        while len(found) < queues:
            requests = [
                _frame(GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue), "bname": self._server.broker_name})
                for queue in range(len(found), min(len(found) + _AT_ONCE, queues))
            ]
            self._socket.sendall(b"".join(requests))
            found += [int(self._answer()[0]["extFields"]["offset"]) for _ in requests]
        return found

    def make_group(self, group: str) -> None:
        """Create a consumer group."""
        self._socket.sendall(
            _frame(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps({"groupName": group}).encode())
        )
        self._answer()

    def commit(self, group: str, topic: str, queues: int, offset: int = 1) -> None:
        """Commit an offset of a group in each queue of a topic, some hundred requests at once."""
        fields = {"consumerGroup": group, "topic": topic, "commitOffset": str(offset)}
        for first in range(0, queues, _AT_ONCE):
            requests = [
                _frame(UPDATE_CONSUMER_OFFSET, {**fields, "queueId": str(queue), "bname": self._server.broker_name})
                for queue in range(first, min(first + _AT_ONCE, queues))
            ]
            self._socket.sendall(b"".join(requests))
            for _ in requests:
                self._answer()

    def timers_behind(self) -> int:
        """Timers that were taken and are not in the wheel yet."""
        self._socket.sendall(_frame(GET_BROKER_RUNTIME_INFO, {}))
        return int(json.loads(self._answer()[1])["table"]["timerOffsetBehind"])

    def send_seconds(self) -> float:
        """The latency of one small message."""
        fields = {
            "a": "BenchProbe",
            "b": PROBED_TOPIC,
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": str(int(time.time() * 1000)),
            "h": "0",
            "i": "WAIT\x01true\x02",
            "j": "0",
            "k": "false",
            "m": "false",
            "n": self._server.broker_name,
        }
        frame = _frame(SEND_MESSAGE_V2, fields, _BODY)
        began = time.perf_counter()
        self._socket.sendall(frame)
        self._answer()
        return time.perf_counter() - began

    def _answer(self) -> tuple[dict[str, Any], bytes]:
        length, header_length = struct.unpack(">iI", self._exactly(8))
        header_length &= 0xFFFFFF
        payload = self._exactly(length - 4)
        header = json.loads(payload[:header_length])
        if header["code"]:
            raise PeerError(f"{self._server.name} answers {header['code']}: {header.get('remark')}")
        return header, payload[header_length:]

    def _exactly(self, size: int) -> bytes:
        got = self._stream.read(size)
        if len(got) != size:
            raise PeerError(f"{self._server.name} has closed the connection\n{self._server.quote()}")
        return got


def _frame(code: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    header = json.dumps(
        {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 513, "extFields": dict(fields)}
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
