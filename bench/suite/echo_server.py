"""A server that does nothing: it answers every frame of a sender with one that was made before. Run as a program.

What a sender gets from it is the most that it could get from a server whose protocol is Python, on the event loop
that OrbitMQ has.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import TYPE_CHECKING, cast

from orbitmq.platform.event_loop import run

if TYPE_CHECKING:
    from collections.abc import Callable

_OPAQUE = b'"opaque":'
_DIGITS = 7
_HEADER = (
    b'{"code":0,"extFields":{"queueId":"0","transactionId":"7F000001000012345678000000000000",'
    b'"msgId":"7F00000100002A9F0000000000000000","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"queueOffset":"100000"},"flag":1,"language":"JAVA","opaque":1000000,'
    b'"serializeTypeCurrentRPC":"JSON","version":513}'
)
ANSWER = struct.pack(">II", 4 + len(_HEADER), len(_HEADER)) + _HEADER
"""An answer to a send, with the opaque of the raw load's width."""

_AT = ANSWER.index(_OPAQUE) + len(_OPAQUE)
_BEFORE, _BEHIND = ANSWER[:_AT], ANSWER[_AT + _DIGITS :]


class Echo(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._held = b""
        self._write: Callable[[bytes], object] = _nowhere

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def data_received(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
        answers: list[bytes] = []
        at, end = 0, len(data)
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big")
            if end - at < 4 + size:
                break
            opaque = data.index(_OPAQUE, at) + len(_OPAQUE)
            answers += (_BEFORE, data[opaque : opaque + _DIGITS], _BEHIND)
            at += 4 + size
        self._held = data[at:]
        if answers:
            self._write(b"".join(answers))


def _nowhere(_data: bytes) -> None:
    """Before there is a connection nothing can be written."""


async def serve(port: int) -> None:
    """Answer until killed."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    run(serve(int(sys.argv[1])))
