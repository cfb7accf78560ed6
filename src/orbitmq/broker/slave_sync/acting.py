"""Slave acting master: for readers, a slave takes the place of a master that no name server knows.

With ``enableSlaveActingMaster`` on the brokers and ``supportActingMaster`` on the name servers, routes show the
slave with the smallest id as the master, without write permission. It locks queues for orderly consumers, keeps
offsets and serves pulls, whatever ``slaveReadEnable`` says. It appends nothing: with ``enableRemoteEscape`` its
delay levels, its timer, POP retries and half messages go to other masters (broker/escape); pops wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import GetBrokerMemberGroupResponseBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.processor import handler_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.broker")

MASTER_ID = 0


async def members_of_group(
    runtime: BrokerRuntime, ask: Callable[[Command], Awaitable[Command | None]]
) -> Mapping[int, str] | None:
    """Addresses of the brokers with this broker's name, by id, as a name server knows them; None without an answer.

    Raises ProtocolError.
    """
    config = runtime.config
    fields = {"clusterName": config.broker_cluster_name, "brokerName": config.broker_name}
    answer = await ask(Command(RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields=fields))
    if answer is None or answer.code != ResponseCode.SUCCESS or answer.body is None:
        return None
    group = GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group
    return {} if group is None else group.broker_addrs


class ActingMaster:
    """Decides whether a slave acts as master, from ``start`` to ``stop``."""

    def __init__(self, runtime: BrokerRuntime, ask: Callable[[Command], Awaitable[Command | None]]) -> None:
        self._runtime = runtime
        self._config = runtime.config
        self._role = runtime.role
        self._ask = ask
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._yields_until = 0.0
        self.on_change: list[Callable[[], None]] = []
        """Called when this slave begins or ends to act as master."""

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: handler_of(self.min_id_changed)}

    def min_id_changed(self, request: Command, _: Connection) -> Command:
        """NOTIFY_MIN_BROKER_ID_CHANGE: a name server saw a broker of this name come or go."""
        self._wake.set()
        return request.response(ResponseCode.SUCCESS)

    def start(self) -> None:
        if self._role.is_slave and self._config.enable_slave_acting_master:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def give_way(self, seconds: float) -> None:
        """Do not act for a while: the master is about to register."""
        self._yields_until = asyncio.get_running_loop().time() + seconds
        self._set(False)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                members = await members_of_group(self._runtime, self._ask)
                # Without an answer nothing is known to have changed.
                is_yielding = asyncio.get_running_loop().time() < self._yields_until
                if members and not (is_yielding and MASTER_ID not in members):
                    self._set(MASTER_ID not in members and min(members) == self._role.broker_id)
            except ProtocolError as error:
                log.warning("acting master: malformed answer of a name server: %s", error)
            except Exception:
                # Any error: a slave that ceased to look would stand in for ever, or never.
                log.exception("acting master: looking for the master failed, will retry")
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._config.sync_broker_member_group_period / 1000)

    def _set(self, acts: bool) -> None:
        if self._role.acts_as_master is acts:
            return
        self._role.acts_as_master = acts
        if acts:
            name = self._config.broker_name
            log.warning("acting master: no master of %s is registered, this slave serves readers", name)
        else:
            log.info("acting master: the master of %s is back, this slave follows it", self._config.broker_name)
        for callback in self.on_change:
            try:
                callback()
            except Exception:
                log.exception("acting master: a part of this slave did not take the change")
