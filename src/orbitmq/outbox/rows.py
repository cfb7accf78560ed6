"""Messages as rows of the outbox, and rows as messages that a producer sends."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import ipaddress
import json
import os
import random
import time
from typing import TYPE_CHECKING, Any

from orbitmq.client import forks
from orbitmq.client.config import local_address
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.messages import Message
from orbitmq.client.validation import check_message, check_properties_size, check_topic_to_send
from orbitmq.protocol import property_names as names
from orbitmq.protocol.message_id import UniqueIdFactory
from orbitmq.protocol.properties import encode

if TYPE_CHECKING:
    import sqlalchemy as sa

OUTBOX_ID = "OUTBOX_ID"
"""The property with the number of the row, by which people find it. To know a message again, consumers use its
``message_id``: two tables may have the same numbers."""

_ROOM_FOR_OUTBOX_ID = 32


@dataclasses.dataclass(frozen=True, slots=True)
class UnsentMessage:
    """A message that waits in the outbox, as people are told of it."""

    id: int
    message_id: str
    topic: str
    failures: int
    """How often it was tried to send it."""
    last_error: str | None
    created_at: datetime.datetime

    @classmethod
    def of(cls, row: sa.Row[Any]) -> UnsentMessage:
        created = datetime.datetime.fromtimestamp(row.created_at / 1000, datetime.UTC)
        return cls(row.id, row.message_id, row.topic, row.failures, row.last_error, created)


@dataclasses.dataclass(slots=True)
class TakenMessage:
    """A message that a relay has taken to send it."""

    id: int
    lane: int | None
    failures: int
    created_at: int
    message_id: str
    message: Message
    damage: InvalidMessageError | None = None
    """Why it cannot be read: somebody has changed the row."""

    @classmethod
    def of(cls, row: sa.Row[Any]) -> TakenMessage:
        message = Message(row.topic, row.body, flag=row.flag)
        taken = cls(row.id, row.lane, row.failures, row.created_at, row.message_id, message)
        message.properties.clear()
        try:
            properties = json.loads(row.properties)
            message.properties.update({str(name): str(value) for name, value in properties.items()})
        except (ValueError, AttributeError) as error:
            taken.damage = InvalidMessageError(f"its properties are no JSON object: {error}")
        message.properties[names.UNIQUE_KEY] = row.message_id
        message.properties[OUTBOX_ID] = str(row.id)
        return taken

    def unsent(self, failures: int, error: str) -> UnsentMessage:
        """What people are told when it could not be sent."""
        created = datetime.datetime.fromtimestamp(self.created_at / 1000, datetime.UTC)
        return UnsentMessage(self.id, self.message_id, self.message.topic, failures, error, created)


def row_of(message: Message, most_bytes: int) -> dict[str, Any]:
    """What a new row says of a message. Raises InvalidMessageError for a message that could never be sent."""
    check_message(message, most_bytes)
    check_topic_to_send(message.topic)
    # A message that was sent before has an id, but what is added here is another message.
    kept = {name: value for name, value in message.properties.items() if name != names.UNIQUE_KEY}
    message_id = _ids()
    check_properties_size(len(encode({**kept, names.UNIQUE_KEY: message_id})) + _ROOM_FOR_OUTBOX_ID)
    sharding_key = kept.get(names.SHARDING_KEY)
    return {
        "message_id": message_id,
        "topic": message.topic,
        "body": message.body,
        # As text that people can read; what JSON escapes is what PostgreSQL would not take.
        "properties": json.dumps(kept, ensure_ascii=False).encode("utf-8", "replace").decode(),
        "flag": message.flag,
        "lane": lane_of(message.topic, sharding_key) if sharding_key else None,
    }


def lane_of(topic: str, sharding_key: str) -> int:
    """What messages that are sent in order have in common, as a number of 64 bits."""
    text = f"{topic}\x00{sharding_key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)


class _Ids:
    """Ids as producers make them, so that tools that read the time in them find the messages."""

    def __init__(self) -> None:
        self._forks = -1
        self._factory: UniqueIdFactory

    def __call__(self) -> str:
        # A copy of this process must not go on with the same numbers.
        if self._forks != forks.count:
            address = ipaddress.ip_address(local_address()).packed
            self._factory = UniqueIdFactory(address, os.getpid(), random.SystemRandom().getrandbits(32), _now_ms)
            self._forks = forks.count
        return self._factory()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_ids = _Ids()
