"""Notices to brokers that another of their group has the smallest id now (905)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import encode_fields
from orbitmq.protocol.request_fields import REQUEST_FIELDS
from orbitmq.remoting import RemotingClient, RemotingError

if TYPE_CHECKING:
    from orbitmq.nameserver.brokers import MinBrokerIdChange
    from orbitmq.protocol.fields import FieldValue

log = logging.getLogger("orbitmq.nameserver")

MOST_UNSENT = 1024
"""Notices under way at a time. Brokers find out by themselves too, so one that is dropped does no harm."""


class Notifications:
    """Sends notices without waiting for them. To be made inside the loop that it belongs to."""

    def __init__(self) -> None:
        self._client = RemotingClient()
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, change: MinBrokerIdChange) -> None:
        """Tell everybody concerned, each on the address it registered."""
        for address in change.recipients:
            if len(self._sending) >= MOST_UNSENT:
                log.warning("%s is not told of its new smallest id: too many notices are under way", address)
                continue
            task = asyncio.get_running_loop().create_task(self._send(address, _notice(change)))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in tuple(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._client.close()

    async def _send(self, address: str, notice: Command) -> None:
        try:
            await self._client.call_oneway(address, notice)
        except (RemotingError, ProtocolError) as error:
            log.warning("%s was not told of its new smallest id: %s", address, error)


def _notice(change: MinBrokerIdChange) -> Command:
    fields: dict[str, FieldValue] = {
        "minBrokerId": change.min_id,
        "minBrokerAddr": change.min_address,
        "offlineBrokerAddr": change.offline_address,
        "haBrokerAddr": change.ha_address,
    }
    table = REQUEST_FIELDS[RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE]
    return Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields=encode_fields(fields, table))
