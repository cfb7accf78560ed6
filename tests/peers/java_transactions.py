"""Producers of transactions of Apache's Java clients."""

from __future__ import annotations

import dataclasses
from typing import Any

from peers.java_client import Message, Queue, Started, message, outgoing

COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
"""What a local transaction comes to, spelled as there."""


@dataclasses.dataclass(frozen=True, slots=True)
class SentInTransaction:
    """What a producer was told about a half message, and what its local transaction came to."""

    status: str
    message_id: str
    transaction_id: str
    queue: Queue
    queue_offset: int
    state: str


class JavaTransactionProducer(Started):
    """A producer whose local transactions come to what the test says; asked about one, it says ``answer``."""

    KIND = "transaction"

    def send(self, topic: str, body: str | bytes, state: str, **said: Any) -> SentInTransaction:
        """``said`` may have tags, keys, flag and properties."""
        row = self._ask("send", message=outgoing(topic, body, said), state=state)
        return SentInTransaction(
            status=row["status"],
            message_id=row["messageId"],
            transaction_id=row["transactionId"],
            queue=Queue(**row["queue"]),
            queue_offset=row["queueOffset"],
            state=row["state"],
        )

    def answer(self, keys: str, state: str) -> None:
        """What to say of messages with these keys from now on; of others it does not know."""
        self._ask("answer", keys=keys, state=state)

    def checked(self) -> list[Message]:
        """What it was asked about."""
        return [message(row) for row in self._ask("checked")]

    def queues(self, topic: str) -> list[Queue]:
        """Where it can send to."""
        return [Queue(**row) for row in self._ask("queues", topic=topic)]
