"""Brokers that requests name: only registered ones, so that nobody reaches other hosts through a console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.errors import NotFoundError
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.message.message_id import decode_offset_id

if TYPE_CHECKING:
    from orbitmq.dashboard.clusters import ManagedCluster


async def check_broker(cluster: ManagedCluster, broker: str) -> str:
    """The name or address again, if it is that of a registered broker. Raises NotFoundError."""
    if broker not in await _known(cluster):
        raise NotFoundError("broker", broker, "no broker with this name or address is registered")
    return broker


async def check_message_id(cluster: ManagedCluster, message_id: str) -> None:
    """Check that a broker's message id, which has an address in it, is of a registered broker.

    An id of the other kind, which a producer made, has none. Raises NotFoundError.
    """
    try:
        host, _ = decode_offset_id(message_id)
    except ProtocolError:
        return
    if host_text(host) not in await _known(cluster):
        raise NotFoundError("message", message_id, "its id is not of a registered broker")


async def _known(cluster: ManagedCluster) -> set[str]:
    brokers = [status.broker for status in await cluster.brokers()]
    return {broker.broker_name for broker in brokers} | {broker.address for broker in brokers}
