"""Mutated bodies: messages, batches, JSON documents, settings."""

from __future__ import annotations

import dataclasses
import re
import struct
import zlib
from typing import TYPE_CHECKING

from faults.fuzz.safety import CONFIG_CODES, settings
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    import random

    from faults.fuzz.values import Values

_NUMBER = re.compile(rb"-?\d+")
_STRING = re.compile(rb'"([^"\\]*)"')
_HUGE = (65_536, 300_000, 4_194_304, 4_194_305)


@dataclasses.dataclass(frozen=True, slots=True)
class Bodies:
    """Bodies drawn from one random source."""

    random: random.Random
    values: Values

    def body(self, code: int, body: bytes) -> bytes:
        """The body of a request, after one mutation."""
        if code in CONFIG_CODES:
            return settings(self.random)
        if code == RequestCode.SEND_BATCH_MESSAGE and self.random.random() < 0.8:
            return self.batch()
        draw = self.random.random()
        if body[:1] in {b"{", b"["} and draw < 0.8:
            return self._document(body)
        if draw < 0.001:
            return b"h" * self.random.choice(_HUGE)
        if draw < 0.2:
            return b""
        if draw < 0.4:
            return body[: self.random.randrange(len(body) + 1)]
        if draw < 0.5:
            return self.random.randbytes(self.random.choice((1, 4, 16, 100, 5000)))
        if draw < 0.55:
            return zlib.compress(body)
        if draw < 0.6:
            return b"[" * self.random.choice((1, 100, 2000, 20_000))
        return self._flipped(body)

    def _flipped(self, body: bytes) -> bytes:
        if not body:
            return b"\0"
        damaged = bytearray(body)
        for _ in range(self.random.randrange(1, 5)):
            damaged[self.random.randrange(len(damaged))] ^= 1 << self.random.randrange(8)
        return bytes(damaged)

    def _document(self, body: bytes) -> bytes:
        """JSON with numbers, strings and separators replaced."""
        draw = self.random.random()
        if draw < 0.4:
            return self._replaced(_NUMBER, body, self.values.number().encode())
        if draw < 0.8:
            value = self.random.choice(
                (self.values.text, self.values.topic, self.values.group, self.values.expression)
            )
            text = value().encode("utf-8", "replace").replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            return self._replaced(_STRING, body, b'"' + text + b'"')
        if draw < 0.85:
            return self._replaced(_STRING, body, self.random.choice((b"null", b"[]", b"{}", b"1", b"[[[]]]", b"'")))
        if draw < 0.9:
            return body[: self.random.randrange(len(body))]
        if draw < 0.95:
            return body.replace(b",", b" ,\n")
        return self._flipped(body)

    def _replaced(self, pattern: re.Pattern[bytes], body: bytes, value: bytes) -> bytes:
        places = [found.span() for found in pattern.finditer(body)]
        if not places:
            return body + value
        start, end = self.random.choice(places)
        return body[:start] + value + body[end:]

    def batch(self) -> bytes:
        """Messages of one send; the lengths of one of them may lie."""
        count = self.random.choice((0, 1, 2, 5, 5, 30)) if self.random.random() < 0.999 else 20_000
        items = [self._item() for _ in range(min(count, 30))]
        if count > len(items):
            items *= count // 30
        data = bytearray(b"".join(items))
        if data and self.random.random() < 0.4:
            struct.pack_into(
                ">i",
                data,
                min(self.random.choice((0, 4, 8, 12, 16)), max(len(data) - 4, 0)),
                self.random.choice((0, 1, -1, 2**31 - 1, -(2**31), len(data), len(data) + 1)),
            )
        if data and self.random.random() < 0.1:
            del data[self.random.randrange(len(data)) :]
        return bytes(data)

    def _item(self) -> bytes:
        body = b"b" * self.random.choice((0, 1, 10, 100))
        properties = self.values.properties().encode("utf-8", "replace")
        size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(properties)
        head = struct.pack(">iiiii", size, 0, 0, self.random.choice((0, 0, -1, 2**31 - 1)), len(body))
        return head + body + struct.pack(">H", len(properties) & 0xFFFF) + properties
