"""Sending a whole group back, or ahead, to a moment: what a tool does, from code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError, OrbitMQError
from orbitmq.client.routes import MASTER
from orbitmq.protocol.bodies import ResetOffsetBody
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command import Command
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.client.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue

RESET_SECONDS = 10.0
"""A broker looks the offsets up and writes them before it answers."""


async def reset_to_time(
    instance: ClientInstance, group: str, topic: str, timestamp_ms: int
) -> dict[MessageQueue, int]:
    """Let a group go on at the first messages stored at a time or after it; returns where that is.

    All its members do so, wherever they are. Raises OrbitMQError if a broker of the topic does not do it; others
    may have done it then.
    """
    route = await instance.refresh(topic)
    masters = [replicas[MASTER] for replicas in route.addresses.values() if MASTER in replicas]
    if not masters:
        raise NoRouteError(topic, "none of its brokers has a master")
    fields = {"topic": topic, "group": group, "timestamp": str(timestamp_ms), "isForce": "true"}
    moved: dict[MessageQueue, int] = {}
    for address in masters:
        command = Command(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=dict(fields), language=LanguageCode.PYTHON
        )
        try:
            answer = await instance.call(address, command, RESET_SECONDS)
        except RemotingError as error:
            raise OrbitMQError(f"{address} did not move the group {group!r}: {error}") from error
        if answer.body is not None:
            moved.update(ResetOffsetBody.decode(answer.body).offset_table)
    return moved
