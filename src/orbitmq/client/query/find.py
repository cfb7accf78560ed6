"""Look-up of messages by key for applications: with namespace and time range."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.client import namespace as namespaces
from orbitmq.client.config import ClientConfig, name_server_list, unique_instance_name
from orbitmq.client.errors import InvalidMessageError, OrbitMQError
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.client.query.by_key import ALWAYS, query_by_key
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    import datetime
    from collections.abc import AsyncIterator, Iterable

    from orbitmq.client.message import ReceivedMessage

MAX_FOUND = 64
"""Maximum of messages per broker: the default limit of RocketMQ's brokers."""


async def find(
    instance: ClientInstance,
    topic: str,
    key: str,
    *,
    most: int = MAX_FOUND,
    since: float | datetime.datetime | None = None,
    until: float | datetime.datetime | None = None,
) -> list[ReceivedMessage]:
    """The messages of a topic that have a key, oldest first. Raises OrbitMQError, InvalidMessageError."""
    if not key or most < 1:
        raise InvalidMessageError(f"find needs a key and a limit of at least 1, not {key!r} and {most}")
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
        raise OrbitMQError(f"the look-up of messages of {topic!r} failed: {error}") from error
    for message in found:
        message.topic = namespaces.unwrap(namespace, message.topic)
    return found


async def find_messages(
    name_servers: str | Iterable[str] | None, topic: str, key: str, *, most: int = MAX_FOUND, since: float = 0
) -> list[ReceivedMessage]:
    """``find`` with a temporary client."""
    async with connected_instance(name_servers) as instance:
        return await find(instance, topic, key, most=most, since=since)


@contextlib.asynccontextmanager
async def connected_instance(name_servers: str | Iterable[str] | None) -> AsyncIterator[ClientInstance]:
    """A temporary client, for queries."""
    config = ClientConfig(name_servers=name_server_list(name_servers))
    instance = ClientInstance.acquire(config, config.client_id(unique_instance_name()))
    try:
        yield instance
    finally:
        await instance.release()


def _milliseconds(when: float | datetime.datetime) -> int:
    return round((when if isinstance(when, float | int) else when.timestamp()) * 1000)
