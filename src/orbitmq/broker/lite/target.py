"""Messages of lite topics: their properties name the light queue that the store appends them to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.lite_topic import is_lite_topic_name, light_queue
from orbitmq.protocol.message.properties import find, with_property, without
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.store import MessageStore

LITE_TOPIC = names.LITE_TOPIC.encode()
_MULTI_DISPATCH = names.INNER_MULTI_DISPATCH.encode()
_MULTI_OFFSET = names.INNER_MULTI_QUEUE_OFFSET.encode()


def with_light_queue(store: MessageStore, topics: TopicTable, parent: str, name: bytes, properties: bytes) -> bytes:
    """The properties of a message of a lite topic, with its light queue.

    Raises RequestRefusedError, and NotReadyError while the light queue is being deleted.
    """
    lite_topic = name.decode("utf-8", "replace")
    if not store.dispatcher.has_lmqs:
        # RocketMQ stores it where no consumer of the lite topic finds it.
        raise RequestRefusedError(
            "lite topics need enableLmq=true and enableMultiDispatch=true in the settings of the broker",
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        )
    if not is_lite_topic_name(lite_topic):
        raise RequestRefusedError(
            f"the lite topic {lite_topic[:80]!r} is illegal: it may have letters, digits, '-' and '_'",
            ResponseCode.MESSAGE_ILLEGAL,
        )
    queue = light_queue(parent, lite_topic)
    topics.check_settled(queue)
    return with_property(properties, _MULTI_DISPATCH, queue.encode())


def without_light_queue(properties: bytes) -> bytes:
    """The properties of a copy of a message that is not for the consumers of its lite topic again.

    RocketMQ keeps them, and a dead letter comes to the same consumers as a new message.
    """
    if find(properties, LITE_TOPIC) is None:
        return properties
    return without(properties, (_MULTI_DISPATCH, _MULTI_OFFSET))
