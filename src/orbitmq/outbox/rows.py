"""Conversion between messages and rows of the outbox."""

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

from orbitmq.client.config import local_address
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.instance import fork_guard
from orbitmq.client.message import Message
from orbitmq.client.validation import check_message, check_properties_size, check_topic_to_send
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.message_id import UniqueIdFactory
from orbitmq.protocol.message.properties import encode

if TYPE_CHECKING:
    import sqlalchemy as sa

OUTBOX_ID = "OUTBOX_ID"
"""Property with the id of the row, for look-ups. Consumers deduplicate by ``message_id``, because ids of two tables
may collide."""

_ROOM_FOR_OUTBOX_ID = 32


@dataclasses.dataclass(frozen=True, slots=True)
class UnsentMessage:
    """An unsent message, for reports and alarms."""

    id: int
    message_id: str
    topic: str
    failures: int
    """Number of failed attempts."""
    last_error: str | None
    created_at: datetime.datetime

    @classmethod
    def of(cls, row: sa.Row[Any]) -> UnsentMessage:
        created = datetime.datetime.fromtimestamp(row.created_at / 1000, datetime.UTC)
        return cls(row.id, row.message_id, row.topic, row.failures, row.last_error, created)


@dataclasses.dataclass(slots=True)
class ClaimedMessage:
    """A message that a relay has claimed."""

    id: int
    ordering_key: int | None
    failures: int
    created_at: int
    message_id: str
    message: Message
    damage: InvalidMessageError | None = None
    """Set if the row is malformed."""

    @classmethod
    def of(cls, row: sa.Row[Any]) -> ClaimedMessage:
        message = Message(row.topic, row.body, flag=row.flag)
        claimed = cls(row.id, row.lane, row.failures, row.created_at, row.message_id, message)
        message.properties.clear()
        try:
            properties = json.loads(row.properties)
            message.properties.update({str(name): str(value) for name, value in properties.items()})
        except (ValueError, AttributeError) as error:
            claimed.damage = InvalidMessageError(f"its properties are not a JSON object: {error}")
        message.properties[names.UNIQUE_KEY] = row.message_id
        message.properties[OUTBOX_ID] = str(row.id)
        return claimed

    def unsent(self, failures: int, error: str) -> UnsentMessage:
        """The report of a failure."""
        created = datetime.datetime.fromtimestamp(self.created_at / 1000, datetime.UTC)
        return UnsentMessage(self.id, self.message_id, self.message.topic, failures, error, created)


def row_of(message: Message, max_bytes: int) -> dict[str, Any]:
    """The row of a message. Raises InvalidMessageError for a message that cannot be sent."""
    check_message(message, max_bytes)
    check_topic_to_send(message.topic)
    # A message that was sent before has an id; the outbox adds a new message.
    kept = {name: value for name, value in message.properties.items() if name != names.UNIQUE_KEY}
    message_id = _ids()
    check_properties_size(len(encode({**kept, names.UNIQUE_KEY: message_id})) + _ROOM_FOR_OUTBOX_ID)
    sharding_key = kept.get(names.SHARDING_KEY)
    return {
        "message_id": message_id,
        "topic": message.topic,
        "body": message.body,
        # Readable text; JSON escapes the characters that PostgreSQL rejects.
        "properties": json.dumps(kept, ensure_ascii=False).encode("utf-8", "replace").decode(),
        "flag": message.flag,
        "lane": ordering_key(message.topic, sharding_key) if sharding_key else None,
    }


def ordering_key(topic: str, sharding_key: str) -> int:
    """Ordering key of messages that are sent in order, as a 64-bit number."""
    text = f"{topic}\x00{sharding_key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)


class _MessageIds:
    """Message ids in the format of producers, so that tools can read their time."""

    def __init__(self) -> None:
        self._forks = -1
        self._factory: UniqueIdFactory

    def __call__(self) -> str:
        # A forked process needs a new factory.
        if self._forks != fork_guard.count:
            address = ipaddress.ip_address(local_address()).packed
            self._factory = UniqueIdFactory(address, os.getpid(), random.SystemRandom().getrandbits(32), _now_ms)
            self._forks = fork_guard.count
        return self._factory()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_ids = _MessageIds()
