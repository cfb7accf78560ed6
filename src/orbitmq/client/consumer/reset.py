"""Offset reset of a whole group to a point in time, as admin tools do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError, OrbitMQError
from orbitmq.client.instance.routes import MASTER
from orbitmq.protocol.bodies import ResetOffsetBody
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue

RESET_SECONDS = 10.0
"""The broker looks up the offsets and writes them before it responds."""


async def reset_to_time(
    instance: ClientInstance, group: str, topic: str, timestamp_ms: int
) -> dict[MessageQueue, int]:
    """Reset a group to the first messages stored at or after a time; returns the offsets.

    The brokers notify all members. Raises OrbitMQError if one broker of the topic fails; others may have reset
    their queues then.
    """
    route = await instance.refresh(topic)
    masters = [replicas[MASTER] for replicas in route.addresses.values() if MASTER in replicas]
    if not masters:
        raise NoRouteError(topic, "its brokers have no master")
    fields = {"topic": topic, "group": group, "timestamp": str(timestamp_ms), "isForce": "true"}
    moved: dict[MessageQueue, int] = {}
    for address in masters:
        command = Command(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=dict(fields), language=LanguageCode.PYTHON
        )
        try:
            answer = await instance.call(address, command, RESET_SECONDS)
        except RemotingError as error:
            raise OrbitMQError(f"offset reset of the group {group!r} failed at {address}: {error}") from error
        if answer.body is not None:
            moved.update(ResetOffsetBody.decode(answer.body).offset_table)
    return moved
