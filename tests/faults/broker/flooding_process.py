"""Flooding process: sends malformed frames over many connections and prints how many it sent.

Run as ``python flooding_process.py <port> <frames>``. A connection sends many frames in a row, all malformed in one
way; the server may close it at the first one. Some are valid frames with empty requests: those get responses, which
are read.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import sys
import time

AT_ONCE = 500
"""Frames of one connection."""
ANSWERED_AT_ONCE = 50
PATIENCE = 30


def framed(header: bytes, kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header), kind << 24 | len(header)) + header


def nonsense(rng: random.Random) -> list[bytes]:
    """Frames that make a server close the connection."""
    return [
        framed(b"{broken"),
        framed(b"[]"),
        framed(b'{"code":"x","opaque":{}}'),
        framed(b"\xff\xfe\xfd" * 5),
        framed(b"\0" * 3, kind=1),
        framed(b"{}", kind=7),
        struct.pack(">iI", 12, 1 << 20) + bytes(8),
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", (1 << 31) - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        rng.randbytes(24),
    ]


def unreadable_requests() -> list[bytes]:
    """Requests that get an error response: unknown codes, missing fields, non-numeric fields."""
    wrong = '{"a":"","b":"","e":"many","queueId":"many","topic":"\\u0000","consumerGroup":""}'
    codes = (9999, 10, 11, 12, 14, 15, 34, 36, 310, 320, 361)
    return [
        framed(f'{{"code":{code},"flag":0,"opaque":{code},"extFields":{fields}}}'.encode())
        for code in codes
        for fields in ("{}", wrong)
    ]


def main() -> None:
    port, frames = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(7)
    garbage, requests = nonsense(rng), unreadable_requests()
    sent = answered = 0
    while sent < frames:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as peer:
            if rng.random() < 0.1:
                peer.sendall(b"".join(rng.choice(requests) for _ in range(ANSWERED_AT_ONCE)))
                answered += read_answers(peer, ANSWERED_AT_ONCE)
                sent += ANSWERED_AT_ONCE
            # The server may have closed the connection while the rest was in flight.
            with contextlib.suppress(ConnectionError):
                peer.sendall(rng.choice(garbage) * AT_ONCE)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass
            sent += AT_ONCE
    sys.stdout.write(f"sent {sent} answered {answered}\n")
    sys.stdout.flush()


def read_answers(peer: socket.socket, count: int) -> int:
    received = b""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        received += peer.recv(65536)
        at = found = 0
        while at + 4 <= len(received):
            at += 4 + struct.unpack_from(">i", received, at)[0]
            found += at <= len(received)
        if found == count:
            return found
    raise TimeoutError("the answers did not come")


if __name__ == "__main__":
    main()
