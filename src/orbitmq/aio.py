"""Client API for asyncio: the names of ``orbitmq``, with coroutine methods."""

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
from orbitmq.client.lite_pull.consumer import LitePullConsumer
from orbitmq.client.message import Message, Receipt, ReceivedMessage, SendStatus
from orbitmq.client.middleware import HandleCall, Middleware, SendCall
from orbitmq.client.producer.batch import PartlySentError
from orbitmq.client.producer.latency_fault import LADDER_4_9, LADDER_5
from orbitmq.client.producer.producer import Producer
from orbitmq.client.producer.queue_selector import by_hash, by_random
from orbitmq.client.producer.request_reply import create_reply
from orbitmq.client.push.consumer import Consumer
from orbitmq.client.serialization.serializer import (
    AvroSerializer,
    JsonSerializer,
    MsgspecSerializer,
    ProtobufSerializer,
    PydanticSerializer,
    Serializer,
)
from orbitmq.client.simple.consumer import SimpleConsumer
from orbitmq.client.simple.popped_message import PoppedMessage
from orbitmq.client.trace.query import trace_message
from orbitmq.client.transaction.producer import TransactionProducer
from orbitmq.client.transaction.transaction import Transaction, TransactionReceipt, TransactionState
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
