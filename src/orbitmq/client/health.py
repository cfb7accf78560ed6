"""Health of a client, for readiness probes and logs: its connections, its lag, and its text in a debugger."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.client.namespace import unwrap
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.client.config import ClientConfig
    from orbitmq.client.instance.instance import ClientInstance


def is_connected(instance: ClientInstance | None) -> bool:
    """True while a connection to a broker is open; before any topic is known, to a name server."""
    if instance is None:
        return False
    brokers = {
        address
        for route in instance.routes.values()
        for replicas in route.addresses.values()
        for address in replicas.values()
    }
    return any(map(instance.client.is_connected, brokers or instance.config.name_servers))


async def reach(instance: ClientInstance, seconds: float) -> bool:
    """Connect to a name server unless something is connected; False if none is reachable in time."""
    if is_connected(instance):
        return True
    for address in instance.config.name_servers:
        try:
            async with asyncio.timeout(seconds):
                await instance.connection(address)
        except (RemotingError, TimeoutError):
            continue
        return True
    return False


async def queue_lag(
    instance: ClientInstance,
    group: str,
    queues: Iterable[MessageQueue],
    consumed: Callable[[MessageQueue], int | None],
) -> dict[MessageQueue, int]:
    """Stored messages of each queue that the group has not consumed, by queues without namespace.

    ``consumed`` knows newer offsets than the brokers, or returns None. Raises OrbitMQError.
    """
    from orbitmq.client.query.queue_offsets import bounds, committed  # noqa: PLC0415 - a producer has no lag

    chosen = set(queues)
    found = {}
    try:
        for topic in sorted({queue.topic for queue in chosen}):
            ends = await bounds(instance, topic)
            mine = [queue for queue in ends if queue in chosen]
            stored = await committed(instance, group, [queue for queue in mine if consumed(queue) is None])
            for queue in mine:
                offset = consumed(queue)
                at = stored.get(queue, 0) if offset is None else offset
                plain = MessageQueue(unwrap(instance.config.namespace, topic), queue.broker_name, queue.queue_id)
                found[plain] = max(ends[queue].max - max(at, ends[queue].min), 0)
    except RemotingError as error:
        raise OrbitMQError(f"the lag of {group!r} is unknown: {error}") from error
    return found


def described(client: object, group: str, config: ClientConfig, was_started: bool, is_open: bool) -> str:
    """Text of a client: its class, group, name servers and state."""
    state = "running" if is_open else "closed" if was_started else "not started"
    return f"<{type(client).__name__} {group!r} at {';'.join(config.name_servers)}, {state}>"
