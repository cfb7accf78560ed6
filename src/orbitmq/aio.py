"""The client for asyncio: the names of ``orbitmq``, with verbs that are awaited."""

from orbitmq.client.consume_result import ConsumeResult
from orbitmq.client.consumer import Consumer
from orbitmq.client.errors import (
    BrokerError,
    InvalidMessageError,
    NoNameServerError,
    NoRouteError,
    NotRunningError,
    OrbitMQError,
    SendError,
    SendTimeoutError,
    TooManySendsError,
)
from orbitmq.client.lite_pull import LitePullConsumer
from orbitmq.client.messages import Message, Receipt, ReceivedMessage, SendStatus
from orbitmq.client.producer import Producer
from orbitmq.protocol.bodies import MessageQueue

__all__ = [
    "BrokerError",
    "ConsumeResult",
    "Consumer",
    "InvalidMessageError",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "NoNameServerError",
    "NoRouteError",
    "NotRunningError",
    "OrbitMQError",
    "Producer",
    "Receipt",
    "ReceivedMessage",
    "SendError",
    "SendStatus",
    "SendTimeoutError",
    "TooManySendsError",
]
