"""Taking back a message that waits for its time, from the broker that has it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client import namespaces
from orbitmq.client.errors import InvalidMessageError, NoRouteError, SendError
from orbitmq.client.validation import check_topic_to_send
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.protocol.recall_handle import decode_recall_handle
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.client.instance import ClientInstance


async def recall(instance: ClientInstance, group: str, topic: str, handle: str, seconds: float) -> str:
    """Ask the broker that a handle names; returns the id of the message.

    Raises InvalidMessageError, NoRouteError, BrokerError, SendError.
    """
    check_topic_to_send(topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise InvalidMessageError(f"messages of the topic {topic!r} cannot be taken back")
    try:
        broker_name = decode_recall_handle(handle).broker_name
    except ProtocolError as error:
        raise InvalidMessageError(
            f"{error}: it is what the receipt of the message has as its recall_handle"
        ) from None
    wire_topic = namespaces.wrap(instance.config.namespace, topic)
    fields = {"producerGroup": group, "topic": wire_topic, "recallHandle": handle, "bname": broker_name}
    request = Command(RequestCode.RECALL_MESSAGE, ext_fields=fields)
    try:
        async with asyncio.timeout(seconds):
            if instance.address(wire_topic, broker_name) is None:
                await instance.refresh(wire_topic)
            address = instance.address(wire_topic, broker_name)
            if address is None:
                raise NoRouteError(f"no broker {broker_name!r} is known, which has the message to be taken back")
            answer = await instance.call(instance.send_address(address), request, seconds)
    except (RemotingError, TimeoutError) as error:
        raise SendError(f"{broker_name!r} could not be asked to take a message back: {error}") from error
    return answer.ext_fields.get("msgId", "")
