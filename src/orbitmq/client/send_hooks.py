"""What applications may do before and after each send: watch it, measure it, or forbid it."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, Protocol

from orbitmq.protocol import property_names as names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.client.messages import Message, Receipt
    from orbitmq.protocol.bodies import MessageQueue


_DELAYS = frozenset(
    {
        *(names.DELAY_LEVEL, names.START_DELIVER_TIME),
        *(names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC),
    }
)


class Communication(enum.Enum):
    """How the sender waits."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"


class MessageType(enum.Enum):
    """What kind of message is sent, in RocketMQ's words."""

    NORMAL = "Normal_Msg"
    TRANSACTION_HALF = "Trans_Msg_Half"
    DELAY = "Delay_Msg"


@dataclasses.dataclass(slots=True)
class SendContext:
    """One attempt to send a message, or a batch of them. ``receipt`` or ``error`` are there after it."""

    producer_group: str
    messages: Sequence[Message]
    queue: MessageQueue
    broker_address: str
    communication: Communication
    message_type: MessageType
    namespace: str = ""
    receipt: Receipt | None = None
    error: Exception | None = None
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """For hooks: what ``before_send`` puts here, ``after_send`` finds."""


class SendHook(Protocol):
    """Watches sends. Called on the producer's loop, so it must not block.

    What ``before_send`` raises goes to the sender and stops the send; what ``after_send`` raises is logged.
    """

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


def message_type(properties: Mapping[str, str]) -> MessageType:
    """The kind of a message with these properties."""
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION_HALF
    if not _DELAYS.isdisjoint(properties):
        return MessageType.DELAY
    return MessageType.NORMAL
