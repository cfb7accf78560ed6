"""Annotations of handler parameters that FastStream fills: the message, the broker, and the received message."""

from typing import Annotated

from faststream import Context

from orbitmq.client.message import ReceivedMessage as Received
from orbitmq.faststream.message import OrbitMQMessage as StreamMessage

__all__ = ["OrbitMQMessage", "ReceivedMessage"]

OrbitMQMessage = Annotated[StreamMessage, Context("message")]
ReceivedMessage = Annotated[Received, Context("message.raw_message.message")]
