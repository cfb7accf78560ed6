"""Recall of delayed messages before their delivery."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client import namespace as namespaces
from orbitmq.client.errors import InvalidMessageError, NoRouteError, SendError
from orbitmq.client.validation import check_topic_to_send
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.recall_handle import decode_recall_handle
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.client.instance.instance import ClientInstance


async def recall(instance: ClientInstance, group: str, topic: str, handle: str, seconds: float) -> str:
    """Recall a message at the broker that its handle names; returns the message id.

    Raises InvalidMessageError, NoRouteError, BrokerError, SendError.
    """
    check_topic_to_send(topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise InvalidMessageError(f"messages of the topic {topic!r} cannot be recalled")
    try:
        broker_name = decode_recall_handle(handle).broker_name
    except ProtocolError as error:
        raise InvalidMessageError(f"{error}: pass the recall_handle of the message's receipt") from None
    wire_topic = namespaces.wrap(instance.config.namespace, topic)
    fields = {"producerGroup": group, "topic": wire_topic, "recallHandle": handle, "bname": broker_name}
    request = Command(RequestCode.RECALL_MESSAGE, ext_fields=fields)
    try:
        async with asyncio.timeout(seconds):
            if instance.address(wire_topic, broker_name) is None:
                await instance.refresh(wire_topic)
            address = instance.address(wire_topic, broker_name)
            if address is None:
                raise NoRouteError(topic, f"the broker {broker_name!r} of the message is unknown")
            answer = await instance.call(instance.send_address(address), request, seconds)
    except (RemotingError, TimeoutError) as error:
        raise SendError(f"the recall request to {broker_name!r} failed: {error}") from error
    return answer.ext_fields.get("msgId", "")
