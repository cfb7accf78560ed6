"""OrbitMQ: a message queue that is RocketMQ at every seam, written in Python.

``Producer``, ``TransactionProducer``, ``Consumer``, ``SimpleConsumer`` and ``LitePullConsumer`` are for plain code;
``orbitmq.aio`` has the same for asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from orbitmq.client.consume_result import ConsumeResult
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
    from orbitmq.client.messages import Message, Receipt, ReceivedMessage, SendStatus
    from orbitmq.client.popped_message import PoppedMessage
    from orbitmq.client.request_reply import create_reply
    from orbitmq.client.sync_consumer import Consumer
    from orbitmq.client.sync_lite_pull import LitePullConsumer
    from orbitmq.client.sync_producer import Producer
    from orbitmq.client.sync_simple_consumer import SimpleConsumer
    from orbitmq.client.sync_transaction import Transaction, TransactionProducer
    from orbitmq.client.transaction import TransactionReceipt, TransactionState
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

_HOMES = {
    "Consumer": "orbitmq.client.sync_consumer",
    "ConsumeResult": "orbitmq.client.consume_result",
    "LitePullConsumer": "orbitmq.client.sync_lite_pull",
    "Message": "orbitmq.client.messages",
    "MessageQueue": "orbitmq.protocol.bodies",
    "PoppedMessage": "orbitmq.client.popped_message",
    "Producer": "orbitmq.client.sync_producer",
    "ReceivedMessage": "orbitmq.client.messages",
    "Receipt": "orbitmq.client.messages",
    "SendStatus": "orbitmq.client.messages",
    "SimpleConsumer": "orbitmq.client.sync_simple_consumer",
    "Transaction": "orbitmq.client.sync_transaction",
    "TransactionProducer": "orbitmq.client.sync_transaction",
    "TransactionReceipt": "orbitmq.client.transaction",
    "TransactionState": "orbitmq.client.transaction",
    "create_reply": "orbitmq.client.request_reply",
}


def __getattr__(name: str) -> Any:
    # Loaded when somebody asks: a server, a tool or a test run need not wait for the client.
    if name not in __all__:
        raise AttributeError(f"module 'orbitmq' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value = getattr(import_module(_HOMES.get(name, "orbitmq.client.errors")), name)
    globals()[name] = value
    return value
