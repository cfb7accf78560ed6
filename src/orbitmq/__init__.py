"""OrbitMQ: Apache RocketMQ's protocol, storage formats and client API in Python.

``Producer``, ``TransactionProducer``, ``Consumer``, ``SimpleConsumer`` and ``LitePullConsumer`` block until a call
is done; ``orbitmq.aio`` has the same names for asyncio.
"""

from __future__ import annotations

__version__ = "0.1.0"

# Not from typing, which takes longer to import than everything else that a command needs at its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orbitmq.client.consumer.allocate_strategy import (
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByMachineRoom,
        AllocateConsistentHash,
        AllocateMachineRoomNearby,
    )
    from orbitmq.client.consumer.result import ConsumeResult
    from orbitmq.client.errors import (
        BodyError,
        BrokerError,
        CannotReplyError,
        InvalidMessageError,
        InvalidOptionError,
        NoNameServerError,
        NoRouteError,
        NotRunningError,
        OrbitMQError,
        RequestTimeoutError,
        SendError,
        SendTimeoutError,
        TooManySendsError,
    )
    from orbitmq.client.message import Message, Receipt, ReceivedMessage, SendStatus
    from orbitmq.client.middleware import HandleCall, Middleware, SendCall
    from orbitmq.client.producer.batch import PartlySentError
    from orbitmq.client.producer.latency_fault import LADDER_4_9, LADDER_5
    from orbitmq.client.producer.queue_selector import by_hash, by_random
    from orbitmq.client.producer.request_reply import create_reply
    from orbitmq.client.serialization.serializer import (
        AvroSerializer,
        JsonSerializer,
        MsgspecSerializer,
        ProtobufSerializer,
        PydanticSerializer,
        Serializer,
    )
    from orbitmq.client.simple.popped_message import PoppedMessage
    from orbitmq.client.sync.consumer import Consumer
    from orbitmq.client.sync.lite_pull import LitePullConsumer
    from orbitmq.client.sync.producer import Producer
    from orbitmq.client.sync.simple import SimpleConsumer
    from orbitmq.client.sync.trace import trace_message
    from orbitmq.client.sync.transaction import Transaction, TransactionProducer
    from orbitmq.client.transaction.transaction import TransactionReceipt, TransactionState
    from orbitmq.protocol.bodies import MessageQueue

__all__ = [
    "LADDER_4_9",
    "LADDER_5",
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AvroSerializer",
    "BodyError",
    "BrokerError",
    "CannotReplyError",
    "ConsumeResult",
    "Consumer",
    "HandleCall",
    "InvalidMessageError",
    "InvalidOptionError",
    "JsonSerializer",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Middleware",
    "MsgspecSerializer",
    "NoNameServerError",
    "NoRouteError",
    "NotRunningError",
    "OrbitMQError",
    "PartlySentError",
    "PoppedMessage",
    "Producer",
    "ProtobufSerializer",
    "PydanticSerializer",
    "Receipt",
    "ReceivedMessage",
    "RequestTimeoutError",
    "SendCall",
    "SendError",
    "SendStatus",
    "SendTimeoutError",
    "Serializer",
    "SimpleConsumer",
    "TooManySendsError",
    "Transaction",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "by_hash",
    "by_random",
    "create_reply",
    "trace_message",
]

_MODULES = {
    "AllocateAveragely": "orbitmq.client.consumer.allocate_strategy",
    "AllocateAveragelyByCircle": "orbitmq.client.consumer.allocate_strategy",
    "AllocateByConfig": "orbitmq.client.consumer.allocate_strategy",
    "AllocateByMachineRoom": "orbitmq.client.consumer.allocate_strategy",
    "AllocateConsistentHash": "orbitmq.client.consumer.allocate_strategy",
    "AllocateMachineRoomNearby": "orbitmq.client.consumer.allocate_strategy",
    "Consumer": "orbitmq.client.sync.consumer",
    "ConsumeResult": "orbitmq.client.consumer.result",
    "LitePullConsumer": "orbitmq.client.sync.lite_pull",
    "Message": "orbitmq.client.message",
    "MessageQueue": "orbitmq.protocol.bodies",
    "SendCall": "orbitmq.client.middleware",
    "Middleware": "orbitmq.client.middleware",
    "HandleCall": "orbitmq.client.middleware",
    "Serializer": "orbitmq.client.serialization.serializer",
    "PydanticSerializer": "orbitmq.client.serialization.serializer",
    "ProtobufSerializer": "orbitmq.client.serialization.serializer",
    "MsgspecSerializer": "orbitmq.client.serialization.serializer",
    "JsonSerializer": "orbitmq.client.serialization.serializer",
    "AvroSerializer": "orbitmq.client.serialization.serializer",
    "LADDER_4_9": "orbitmq.client.producer.latency_fault",
    "LADDER_5": "orbitmq.client.producer.latency_fault",
    "PartlySentError": "orbitmq.client.producer.batch",
    "PoppedMessage": "orbitmq.client.simple.popped_message",
    "Producer": "orbitmq.client.sync.producer",
    "ReceivedMessage": "orbitmq.client.message",
    "Receipt": "orbitmq.client.message",
    "SendStatus": "orbitmq.client.message",
    "SimpleConsumer": "orbitmq.client.sync.simple",
    "Transaction": "orbitmq.client.sync.transaction",
    "TransactionProducer": "orbitmq.client.sync.transaction",
    "TransactionReceipt": "orbitmq.client.transaction.transaction",
    "TransactionState": "orbitmq.client.transaction.transaction",
    "by_hash": "orbitmq.client.producer.queue_selector",
    "by_random": "orbitmq.client.producer.queue_selector",
    "create_reply": "orbitmq.client.producer.request_reply",
    "trace_message": "orbitmq.client.sync.trace",
}


def __getattr__(name: str) -> Any:
    # Lazy: a server, a tool or a test run does not load the client.
    if name not in __all__:
        raise AttributeError(f"module 'orbitmq' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value = getattr(import_module(_MODULES.get(name, "orbitmq.client.errors")), name)
    globals()[name] = value
    return value
