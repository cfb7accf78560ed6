"""Floods against a server in a process of its own: clients that take and never give, and what they cost it."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from typing import TYPE_CHECKING, Self

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from support.broker.broker_harness import free_port_pair
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq
from support.remoting_harness import HOST, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

MEGABYTE = 1 << 20
BUDGET = 32 * MEGABYTE
TOPIC = "flood"


@contextlib.asynccontextmanager
async def flooded_broker(home: Path, **settings: object) -> AsyncIterator[tuple[ServerProcess, int]]:
    """A broker in a process of its own with a small memory budget, and its port."""
    port = free_port_pair()
    conf = home / "broker.conf"
    given = {"remotingMemoryBudget": BUDGET, "brokerIP1": HOST, "bindAddress": HOST, "listenPort": port, **settings}
    conf.write_text(SMALL_FILES + "".join(f"{key}={value}\n" for key, value in given.items()))
    async with orbitmq(home, "broker", "-c", conf, "--data", home / "store") as server:
        await server.says(r"The broker (\S+) listens")
        yield server, port


def frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def json_request(code: int, opaque: int, fields: dict[str, object], body: bytes = b"") -> bytes:
    """A request as a Java client writes it."""
    texts = {name: str(value) for name, value in fields.items()}
    head = {"code": code, "extFields": texts, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 400}
    return frame(json.dumps(head, separators=(",", ":")).encode(), body)


def send_request(opaque: int, body: bytes, topic: str = TOPIC, properties: str = "") -> bytes:
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": properties, "j": 0}
    return json_request(RequestCode.SEND_MESSAGE_V2, opaque, {**fields, "k": "false", "m": "false"}, body)


def pull_request(opaque: int, offset: int = 0, topic: str = TOPIC) -> bytes:
    return json_request(
        RequestCode.PULL_MESSAGE,
        opaque,
        {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 1,
            "expressionType": "TAG",
        },
    )


class Canary:
    """A client that behaves, and sees whether it is served."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE)
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, wire: bytes) -> Command:
        self._socket.sendall(wire)
        prefix = self._exactly(8)
        length, word = struct.unpack(">iI", prefix)
        rest = self._exactly(length - 4)
        return Command.decode((word >> 24, rest[: word & 0xFFFFFF], rest[word & 0xFFFFFF :]))

    def send(self, body: bytes = b"canary", topic: str = TOPIC) -> Command:
        self._opaque += 1
        answer = self.ask(send_request(self._opaque, body, topic))
        assert answer.opaque == self._opaque
        return answer

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            if not received:
                raise ConnectionError("the server closed the connection")
            data += received
        return bytes(data)


def silent_sockets(port: int, count: int) -> Iterator[socket.socket]:
    """Connections that never read; their socket buffers are small."""
    for _ in range(count):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(PATIENCE)
        peer.connect((HOST, port))
        yield peer


def push(peer: socket.socket, data: bytes) -> int:
    """Send as much as the other side takes without waiting; how much that was."""
    peer.setblocking(False)
    sent = 0
    with contextlib.suppress(BlockingIOError, ConnectionError):
        while sent < len(data):
            sent += peer.send(data[sent : sent + 262_144])
    return sent
