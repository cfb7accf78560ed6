"""By what two messages are known to be the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from orbitmq.client.messages import ReceivedMessage


def by_message_id(message: ReceivedMessage) -> str:
    """The id that the producer gave it. It stays the same when the producer, a relay or the broker repeats it, and
    is another one if the application itself sends a message again."""
    return message.message_id


def by_keys(message: ReceivedMessage) -> str:
    """The keys that the application gave it, such as the number of an order. Raises InvalidMessageError if it has
    none."""
    if not message.keys:
        raise InvalidMessageError(f"{message!r} has no keys to know it by: send it with keys, or use by_message_id")
    return " ".join(message.keys)


def digest(group: str, topic: str, key: str) -> str:
    """A key of any length and in any script as one that every database compares letter by letter.

    MySQL takes texts for equal that differ in case or accents only; messages taken for equal would be lost.
    """
    text = "\x00".join((group, topic, key))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
