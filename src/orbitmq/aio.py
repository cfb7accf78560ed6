"""The client for asyncio: the names of ``orbitmq``, with verbs that are awaited."""

from orbitmq.client.consume_result import ConsumeResult
from orbitmq.client.consumer import Consumer
from orbitmq.client.errors import (
    BrokerError,
    CannotReplyError,
    InvalidMessageError,
    NoNameServerError,
    NoRouteError,
    NotRunningError,
    OrbitMQError,
    RequestTimeoutError,
    SendError,
    SendTimeoutError,
    TooManySendsError,
)
from orbitmq.client.lite_pull import LitePullConsumer
from orbitmq.client.messages import Message, Receipt, ReceivedMessage, SendStatus
from orbitmq.client.popped_message import PoppedMessage
from orbitmq.client.producer import Producer
from orbitmq.client.request_reply import create_reply
from orbitmq.client.simple_consumer import SimpleConsumer
from orbitmq.client.transaction import Transaction, TransactionReceipt, TransactionState
from orbitmq.client.transaction_producer import TransactionProducer
from orbitmq.protocol.bodies import MessageQueue

__all__ = [
    "BrokerError",
    "CannotReplyError",
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
    "PoppedMessage",
    "Producer",
    "Receipt",
    "ReceivedMessage",
    "RequestTimeoutError",
    "SendError",
    "SendStatus",
    "SendTimeoutError",
    "SimpleConsumer",
    "TooManySendsError",
    "Transaction",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "create_reply",
]
