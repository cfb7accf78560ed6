"""NOTIFY_MIN_BROKER_ID_CHANGE (905): notifications to brokers that the smallest id of their group changed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import encode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingClient, RemotingError

if TYPE_CHECKING:
    from orbitmq.nameserver.brokers import MinBrokerIdChange
    from orbitmq.protocol.command.fields import FieldValue
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner

log = logging.getLogger("orbitmq.nameserver")

MAX_IN_FLIGHT = 1024
"""Notifications in flight at a time. Brokers also poll their group, so a dropped one does no harm."""


class Notifications:
    """Sends notifications in the background. Must be made inside its event loop."""

    def __init__(self, signer: RequestSigner | None = None, tls: ClientTls | None = None) -> None:
        self._client = RemotingClient(signer=signer, tls=tls)
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, change: MinBrokerIdChange) -> None:
        """Notify the recipients of a change, at the addresses that they registered."""
        for address in change.recipients:
            if len(self._sending) >= MAX_IN_FLIGHT:
                log.warning("notification: dropped for %s: %d are in flight", address, MAX_IN_FLIGHT)
                continue
            task = asyncio.get_running_loop().create_task(self._send(address, _notification(change)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Cancel notifications in flight."""
        for task in tuple(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._client.close()

    async def _send(self, address: str, notification: Command) -> None:
        try:
            await self._client.call_oneway(address, notification)
        except (RemotingError, ProtocolError) as error:
            log.warning("notification: failed for %s: %s", address, error)


def _notification(change: MinBrokerIdChange) -> Command:
    fields: dict[str, FieldValue] = {
        "minBrokerId": change.min_id,
        "minBrokerAddr": change.min_address,
        "offlineBrokerAddr": change.offline_address,
        "haBrokerAddr": change.ha_address,
    }
    table = REQUEST_FIELDS[RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE]
    return Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields=encode_fields(fields, table))
