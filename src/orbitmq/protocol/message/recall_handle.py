"""Recall handles: what a producer shows to take back a message that waits for its time."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from orbitmq.protocol.errors import ProtocolError

_VERSION = "v1"
_PARTS = 5
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class RecallHandle(NamedTuple):
    """Which message is meant. ``timestamp`` is a number of milliseconds as text, as it stands in the handle."""

    topic: str
    broker_name: str
    timestamp: str
    unique_key: str

    def encode(self) -> str:
        """The text that travels: URL-safe base 64 with its padding."""
        topic, broker_name, timestamp, unique_key = self
        text = f"{_VERSION} {topic} {broker_name} {timestamp} {unique_key}".encode("utf-8", "replace")
        return _base64(text).decode()


def encode_recall_handle(topic: bytes, broker_name: bytes, timestamp: int, unique_key: bytes) -> bytes:
    """The handle that says this, from what a broker has at hand. What is not UTF-8 is replaced."""
    text = b"v1 %b %b %d %b" % (topic, broker_name, timestamp, unique_key)
    if not text.isascii():
        parts = (topic.decode("utf-8", "replace"), broker_name.decode(), str(timestamp))
        return RecallHandle(*parts, unique_key.decode("utf-8", "replace")).encode().encode()
    return _base64(text)


def _base64(text: bytes) -> bytes:
    return binascii.b2a_base64(text, newline=False).translate(_URL_SAFE)


def decode_recall_handle(text: str) -> RecallHandle:
    """Read a handle. Raises ProtocolError."""
    try:
        # Java takes it with or without the padding, and nothing that is not of the alphabet.
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        if b"+" in padded or b"/" in padded:
            raise ValueError("not URL-safe")
        parts = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "replace").split(" ")
    except (ValueError, binascii.Error):
        parts = []
    if len(parts) < _PARTS or parts[0] != _VERSION:
        raise ProtocolError("recall handle is invalid")
    return RecallHandle(*parts[1:_PARTS])
