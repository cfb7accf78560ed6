"""Messages looked up by key, at all brokers of their topic."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, NoRouteError, OrbitMQError
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.routes import MASTER
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.record import iter_records
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.client.instance import ClientInstance
    from orbitmq.client.routes import Route

log = logging.getLogger("orbitmq.client")

QUERY_SECONDS = 18.0
"""How long Java's clients wait for this: an index that nobody used for long has to be read from the disk."""

ALWAYS = 2**63 - 1


async def query_by_key(
    instance: ClientInstance, topic: str, key: str, *, most: int, begin_ms: int = 0, end_ms: int = ALWAYS
) -> list[ReceivedMessage]:
    """The messages of a topic with a key or with this id, at most so many of each broker, oldest first.

    A broker that cannot be asked is left out, if there is another. Raises OrbitMQError, RemotingError.
    """
    route = await _route(instance, topic)
    fields = {
        "topic": topic,
        "key": key,
        "maxNum": str(most),
        "beginTimestamp": str(begin_ms),
        "endTimestamp": str(end_ms),
        "_UNIQUE_KEY_QUERY": "false",
    }
    brokers = {name: route.address(name, MASTER, only_this=False) for name in route.addresses}
    answers = await asyncio.gather(
        *(_ask(instance, name, address, fields) for name, address in brokers.items() if address is not None),
        return_exceptions=True,
    )
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in failed:
        if len(failed) == len(answers) or not isinstance(error, OrbitMQError | RemotingError):
            raise error
        log.warning("messages of a broker are missing: %s", error)
    found = [message for answer in answers if not isinstance(answer, BaseException) for message in answer]
    # The index knows hashes of keys: another key may have the same.
    really = (message for message in found if key in message.keys or key == message.message_id)
    return sorted(really, key=lambda message: message.store_timestamp)


async def _route(instance: ClientInstance, topic: str) -> Route:
    """The route of a topic; where it is sent to and name servers do not know it yet, that of its model.

    A broker makes a topic with its first message, and tells name servers a moment later.
    """
    try:
        return await instance.route(topic)
    except NoRouteError:
        if (model := instance.routes.get(topic)) is None:
            raise
        return model


async def _ask(instance: ClientInstance, name: str, address: str, fields: dict[str, str]) -> list[ReceivedMessage]:
    command = Command(RequestCode.QUERY_MESSAGE, ext_fields=dict(fields))
    try:
        answer = await instance.call(address, command, QUERY_SECONDS)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise
    return [ReceivedMessage(record, name) for record in iter_records(answer.body or b"")]
