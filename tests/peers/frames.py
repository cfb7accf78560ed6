"""One remoting request and its answer over a plain socket, with no code of OrbitMQ's in between."""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
from typing import TYPE_CHECKING

from peers.ports import endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

GET_BROKER_CONFIG = 26
GET_BROKER_RUNTIME_INFO = 28
GET_BROKER_CLUSTER_INFO = 106
GET_METADATA_INFO = 1005


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    code: int
    remark: str
    fields: dict[str, str]
    body: bytes


def ask(address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
    """Send one request with a JSON header on a new connection and return the answer to it."""
    header = json.dumps(
        {"code": code, "flag": 0, "language": "OTHER", "opaque": 1, "version": 0}
        | {"extFields": dict(fields or {})}
    ).encode()
    with socket.create_connection(endpoint(address), timeout=5) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        with connection.makefile("rb") as stream:
            length, header_length = struct.unpack(">iI", _exactly(stream.read(8), 8))
            payload = _exactly(stream.read(length - 4), length - 4)
    # The highest byte of the header length names the header's encoding: 0, JSON, as in the request.
    header_length &= 0xFFFFFF
    answer = json.loads(payload[:header_length])
    return Answer(
        code=answer["code"],
        remark=answer.get("remark") or "",
        fields=answer.get("extFields") or {},
        body=payload[header_length:],
    )


def _exactly(got: bytes, size: int) -> bytes:
    if len(got) != size:
        raise ConnectionError(f"the connection ended after {len(got)} of {size} bytes")
    return got
