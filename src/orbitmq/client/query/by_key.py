"""Look-up of messages by key, at all brokers of a topic."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, NoRouteError, OrbitMQError
from orbitmq.client.instance.routes import MASTER
from orbitmq.client.message import ReceivedMessage
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.record import iter_records
from orbitmq.remoting import ConnectError, RemotingError

if TYPE_CHECKING:
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.instance.routes import Route

log = logging.getLogger("orbitmq.client")

QUERY_SECONDS = 18.0
"""Timeout as in Java's clients: a cold index has to be read from disk."""

ALWAYS = 2**63 - 1


async def query_by_key(
    instance: ClientInstance, topic: str, key: str, *, most: int, begin_ms: int = 0, end_ms: int = ALWAYS
) -> list[ReceivedMessage]:
    """The messages of a topic with this key or id, at most ``most`` of each broker, oldest first.

    An unreachable broker is skipped if another one responds. Raises OrbitMQError, RemotingError.
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
    answers = await asyncio.gather(
        *(_query_replicas(instance, name, fields) for name, replicas in route.addresses.items() if replicas),
        return_exceptions=True,
    )
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in failed:
        if len(failed) == len(answers) or not isinstance(error, OrbitMQError | RemotingError):
            raise error
        log.warning("query: skipped an unreachable broker, messages may be missing: %s", error)
    found = [message for answer in answers if not isinstance(answer, BaseException) for message in answer]
    # The index contains hashes of keys, which may collide.
    matching = (message for message in found if key in message.keys or key == message.message_id)
    return sorted(matching, key=lambda message: message.store_timestamp)


async def _route(instance: ClientInstance, topic: str) -> Route:
    """The route of a topic, or the default topic's while name servers do not have it yet.

    A broker auto-creates a topic with its first message and registers it a moment later.
    """
    try:
        return await instance.route(topic)
    except NoRouteError:
        if (model := instance.routes.get(topic)) is None:
            raise
        return model


async def _query_replicas(instance: ClientInstance, name: str, fields: dict[str, str]) -> list[ReceivedMessage]:
    """The messages that the master of a broker finds, or a slave if the master is unreachable."""
    address = instance.address(fields["topic"], name, MASTER, only_this=False)
    assert address is not None, "not in the route"
    try:
        return await _query(instance, name, address, fields)
    except ConnectError:
        other = instance.address(fields["topic"], name, MASTER, only_this=False)
        if other is None or other == address:
            raise
        return await _query(instance, name, other, fields)


async def _query(
    instance: ClientInstance, name: str, address: str, fields: dict[str, str]
) -> list[ReceivedMessage]:
    command = Command(RequestCode.QUERY_MESSAGE, ext_fields=dict(fields))
    try:
        answer = await instance.call(address, command, QUERY_SECONDS)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise
    return [ReceivedMessage(record, name) for record in iter_records(answer.body or b"")]
