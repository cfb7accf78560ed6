"""Messages found again by their keys, as an application asks for them: in its namespace, between two times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client import namespaces
from orbitmq.client.config import ClientConfig, name_server_list, unique_instance_name
from orbitmq.client.errors import InvalidMessageError, OrbitMQError
from orbitmq.client.instance import ClientInstance
from orbitmq.client.message_query import ALWAYS, query_by_key
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable

    from orbitmq.client.messages import ReceivedMessage

MOST_FOUND = 64
"""Of each broker, as many as brokers of RocketMQ tell at most unless they are set up to tell more."""


async def find(
    instance: ClientInstance,
    topic: str,
    key: str,
    *,
    most: int = MOST_FOUND,
    since: float | datetime.datetime | None = None,
    until: float | datetime.datetime | None = None,
) -> list[ReceivedMessage]:
    """The messages of a topic that have a key, oldest first. Raises OrbitMQError, InvalidMessageError."""
    if not key or most < 1:
        raise InvalidMessageError(f"messages are found by a key, at least one of them: {key!r}, {most}")
    namespace = instance.config.namespace
    try:
        found = await query_by_key(
            instance,
            namespaces.wrap(namespace, topic),
            key,
            most=most,
            begin_ms=0 if since is None else _milliseconds(since),
            end_ms=ALWAYS if until is None else _milliseconds(until),
        )
    except RemotingError as error:
        raise OrbitMQError(f"messages of the topic {topic!r} cannot be asked for: {error}") from error
    for message in found:
        message.topic = namespaces.unwrap(namespace, message.topic)
    return found


async def find_messages(
    name_servers: str | Iterable[str] | None, topic: str, key: str, *, most: int = MOST_FOUND, since: float = 0
) -> list[ReceivedMessage]:
    """``find`` for those who have no client yet."""
    config = ClientConfig(name_servers=name_server_list(name_servers))
    instance = ClientInstance.acquire(config, config.client_id(unique_instance_name()))
    try:
        return await find(instance, topic, key, most=most, since=since)
    finally:
        await instance.release()


def _milliseconds(when: float | datetime.datetime) -> int:
    return round((when if isinstance(when, float | int) else when.timestamp()) * 1000)
