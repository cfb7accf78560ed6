"""History of a simulated run: what was sent, with which outcome, and what each group consumed, in order."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue

CHECKSUM_DIGITS = 8
PADDING = 3_000
"""Maximum bytes behind the name of a message in its body."""


class Kind(enum.StrEnum):
    """Kinds of messages; each has a topic of its own with this name."""

    PLAIN = "plain"
    BATCH = "batch"
    ORDERED = "ordered"
    DELAYED = "delayed"
    TRANSACTION = "transaction"


class Outcome(enum.Enum):
    """State of a message as its sender knows it."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    ROLLED_BACK = "rolled back"


@dataclasses.dataclass(slots=True)
class Sent:
    """A message of the workload."""

    name: str
    kind: Kind
    key: str = ""
    number: int = 0
    """Place in the order of its key."""
    outcome: Outcome = Outcome.UNKNOWN
    places: list[tuple[MessageQueue, int]] = dataclasses.field(default_factory=list)
    """Where brokers say that they have stored it: more than one after a retry."""
    ids: list[str] = dataclasses.field(default_factory=list)
    """The broker's ids of these: its address and the position in its log."""
    due: float = 0.0
    """Not before this virtual time."""
    acknowledged_at: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Consumed:
    """A handler call that succeeded."""

    name: str
    member: str
    time: float


class History:
    """All that clients have seen."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self.consumed: dict[str, list[Consumed]] = {}
        """By group."""
        self.violations: list[str] = []
        """Findings on the way."""

    def begin(self, name: str, kind: Kind, key: str = "", number: int = 0) -> Sent:
        sent = self.sent[name] = Sent(name, kind, key, number)
        return sent

    def acknowledged(self, kind: Kind | None = None) -> list[Sent]:
        return [
            sent
            for sent in self.sent.values()
            if sent.outcome is Outcome.ACKNOWLEDGED and kind in (None, sent.kind)
        ]

    def consume(self, group: str, member: str, message: ReceivedMessage, time: float) -> None:
        name = name_in(message.body)
        if name is None or name not in self.sent:
            self.violations.append(f"{group} consumed what was not sent: {message!r} {message.body[:60]!r}")
            return
        self.consumed.setdefault(group, []).append(Consumed(name, member, time))
        sent = self.sent[name]
        if sent.outcome is Outcome.ROLLED_BACK:
            self.violations.append(f"{group} consumed {name}, which was rolled back")
        if time < sent.due:
            self.violations.append(
                f"{group} consumed {name} at {time:.3f}, {sent.due - time:.3f} s before its time"
            )

    def names_of(self, group: str) -> set[str]:
        return {one.name for one in self.consumed.get(group, ())}


def body_of(name: str, padding: int) -> bytes:
    """The body of a message: its name, padding, and a checksum of both."""
    text = name.encode() + b" " + b"." * padding
    return text + b" " + hashlib.sha256(text).hexdigest()[:CHECKSUM_DIGITS].encode()


def name_in(body: bytes) -> str | None:
    """The name of the message with this body; None if the body is damaged."""
    text, _, checksum = body.rpartition(b" ")
    if hashlib.sha256(text).hexdigest()[:CHECKSUM_DIGITS].encode() != checksum:
        return None
    return text.partition(b" ")[0].decode()
