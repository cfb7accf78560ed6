"""Send hooks: application code that runs before and after each attempt to send."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, Protocol

from orbitmq.protocol.message import property_names as names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.client.message import Message, Receipt
    from orbitmq.protocol.bodies import MessageQueue


_DELAYS = frozenset(
    {
        *(names.DELAY_LEVEL, names.START_DELIVER_TIME),
        *(names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC),
    }
)


class Communication(enum.Enum):
    """Kind of send."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"


class MessageType(enum.Enum):
    """Kind of message, with RocketMQ's names."""

    NORMAL = "Normal_Msg"
    TRANSACTION_HALF = "Trans_Msg_Half"
    DELAY = "Delay_Msg"


@dataclasses.dataclass(slots=True)
class SendContext:
    """One attempt to send a message or batch. ``receipt`` or ``error`` is set after it."""

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
    """For hooks: carries values from ``before_send`` to ``after_send``."""


class SendHook(Protocol):
    """Hook around sends. Called on the producer's loop, so it must not block.

    An exception of ``before_send`` aborts the send and reaches the caller; one of ``after_send`` is logged.
    """

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


def message_type(properties: Mapping[str, str]) -> MessageType:
    """Kind of a message, from its properties."""
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION_HALF
    if not _DELAYS.isdisjoint(properties):
        return MessageType.DELAY
    return MessageType.NORMAL
