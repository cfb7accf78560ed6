"""NOTIFY_BROKER_ROLE_CHANGED (1008): notifications to the brokers of a group that a new epoch has begun."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import SyncStateSet
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import encode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingClient, RemotingError

if TYPE_CHECKING:
    from orbitmq.controller.machine.election import Replicas
    from orbitmq.controller.machine.group import BrokerGroup
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner

log = logging.getLogger("orbitmq.controller")

MAX_IN_FLIGHT = 1024
"""Notifications in flight at a time. Brokers also poll, so a dropped one costs time only."""

SECONDS = 3.0
"""Time for one notification, as in RocketMQ."""


class Notifications:
    """Sends notifications in the background. Must be made inside its event loop."""

    def __init__(self, signer: RequestSigner | None = None, tls: ClientTls | None = None) -> None:
        self._client = RemotingClient(signer=signer, tls=tls, connect_seconds=SECONDS)
        self._sending: dict[str, tuple[int, asyncio.Task[None]]] = {}
        """By address: epoch, and its task. A newer epoch cancels an older one."""

    def role_changed(self, group: BrokerGroup, replicas: Replicas) -> None:
        """Notify the living brokers of a group."""
        command = _notification(group)
        for broker_id, replica in sorted(group.replicas.items()):
            if replicas.report(broker_id) is not None:
                self._send(replica.address, group.master_epoch, command)

    def _send(self, address: str, epoch: int, command: Command) -> None:
        running = self._sending.get(address)
        if running is not None:
            if running[0] > epoch:
                return
            running[1].cancel()
        elif len(self._sending) >= MAX_IN_FLIGHT:
            log.warning("role change: notification of %s dropped: %d are in flight", address, MAX_IN_FLIGHT)
            return
        task = asyncio.get_running_loop().create_task(self._sent(address, command))
        self._sending[address] = epoch, task
        task.add_done_callback(lambda ended: self._ended(address, ended))

    def _ended(self, address: str, task: asyncio.Task[None]) -> None:
        running = self._sending.get(address)
        if running is not None and running[1] is task:
            del self._sending[address]

    async def close(self) -> None:
        """Cancel notifications in flight."""
        tasks = [task for _, task in self._sending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def _sent(self, address: str, command: Command) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                await self._client.call_oneway(address, command)
        except (RemotingError, ProtocolError, TimeoutError) as error:
            why = str(error) or "timeout"
            log.warning("role change: notification of %s failed, it will poll: %s", address, why)


def _notification(group: BrokerGroup) -> Command:
    fields = {
        "masterAddress": group.master_address,
        "masterEpoch": group.master_epoch,
        "syncStateSetEpoch": group.set_epoch,
        "masterBrokerId": group.master,
    }
    code = RequestCode.NOTIFY_BROKER_ROLE_CHANGED
    return Command(
        code,
        ext_fields=encode_fields(fields, REQUEST_FIELDS[code]),
        body=SyncStateSet(list(group.in_sync), group.set_epoch).encode(),
    )
