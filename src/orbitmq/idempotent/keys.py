"""Deduplication keys of messages."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage


def by_message_id(message: ReceivedMessage) -> str:
    """The id that the producer generated. Retries of a producer, a relay or a broker keep it; a new send by the
    application has a new one."""
    return message.message_id


def by_keys(message: ReceivedMessage) -> str:
    """The application's keys, such as an order number. Raises InvalidMessageError if there are none."""
    if not message.keys:
        raise InvalidMessageError(f"{message!r} has no keys: send it with keys, or use by_message_id")
    return " ".join(message.keys)


def digest(group: str, topic: str, key: str) -> str:
    """Digest of a key, which every database compares exactly.

    MySQL's collations ignore case and accents; messages with keys that compare equal would be lost.
    """
    text = "\x00".join((group, topic, key))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
