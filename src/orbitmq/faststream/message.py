"""Messages: a delivery with its outcome, FastStream's message of it, and the parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream.message import StreamMessage, decode_message

from orbitmq.client.consumer.result import ConsumeResult
from orbitmq.protocol.message import property_names as names

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"
"""Properties that carry what FastStream knows about a body."""


class Delivery:
    """One delivery of a message, and what the handler decided about it."""

    __slots__ = ("message", "result")

    def __init__(self, message: ReceivedMessage) -> None:
        self.message = message
        self.result: ConsumeResult | None = None

    def __repr__(self) -> str:
        return repr(self.message)


class OrbitMQMessage(StreamMessage[Delivery]):
    """A message in FastStream's pipeline. ``raw_message.message`` is the ``ReceivedMessage``."""

    async def ack(self) -> None:
        """Consumed."""
        self._settle(ConsumeResult.SUCCESS)
        await super().ack()

    async def nack(self, delay: float | None = None) -> None:
        """Retry: with backoff, or after a delay in seconds, which is rounded up to RocketMQ's levels."""
        self._settle(ConsumeResult.LATER if delay is None else ConsumeResult.later(delay=delay))
        await super().nack()

    async def reject(self) -> None:
        """Move to the dead letter queue of the group."""
        self._settle(ConsumeResult.dead_letter())
        await super().reject()

    def _settle(self, result: ConsumeResult) -> None:
        if self.committed is None:
            self.raw_message.result = result


async def parse_message(delivery: Delivery) -> OrbitMQMessage:
    """FastStream's message of a delivery: properties of the application are its headers."""
    message = delivery.message
    properties = message.properties
    headers = {name: text for name, text in properties.items() if name not in names.RESERVED}
    return OrbitMQMessage(
        raw_message=delivery,
        body=message.body,
        headers=headers,
        content_type=headers.get(CONTENT_TYPE),
        # A request has no topic for replies: they go to its sender.
        reply_to=properties.get(names.REPLY_TO_CLIENT, "") if message.is_request else "",
        correlation_id=headers.get(CORRELATION_ID) or properties.get(names.CORRELATION_ID),
        message_id=message.message_id,
    )


async def decode(message: StreamMessage[Any]) -> Any:
    """The value of a body by its content type; without one, JSON, text or bytes."""
    return decode_message(message)
