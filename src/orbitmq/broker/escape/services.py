"""Services of an acting slave: begins and ends its delivery of deferred messages and half messages.

It ends before the master takes over. What other masters have stored is then counted in the progress that the master
fetches, and nothing else is, so that the master delivers the rest.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.escape.pre_online import HANDS_OVER, UndecidedPops
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import fields_of, handler_of

if TYPE_CHECKING:
    from orbitmq.broker.escape.bridge import EscapeBridge
    from orbitmq.broker.escape.revive import Undecided
    from orbitmq.broker.runtime import BrokerRuntime, DeferredServices
    from orbitmq.broker.slave_sync.acting import ActingMaster
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.broker")

DRAIN_SECONDS = 3.0
"""Time-out for messages that are on the way to other masters when this slave ends to act."""

YIELD_SECONDS = 30.0
"""After a master announced itself, this slave does not act for so long: the master is about to register."""


class EscapeServices:
    """Runs deferred services while a slave acts as master. ``bridge`` is None if it may not deliver."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        deferred: DeferredServices,
        acting: ActingMaster,
        bridge: EscapeBridge | None,
        ha_address: str,
    ) -> None:
        self._store = runtime.store
        self._addresses = {"masterHaAddress": ha_address, "masterAddress": runtime.config.broker_address}
        self._role = runtime.role
        self._deferred = deferred
        self._acting = acting
        self._bridge = bridge
        self._is_running = False
        self._ending: asyncio.Task[Undecided] | None = None
        self._lock = asyncio.Lock()
        acting.on_change.append(self._changed)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.EXCHANGE_BROKER_HA_INFO: handler_of(self.exchange)}

    async def exchange(self, request: Command, _: Connection) -> Command:
        """EXCHANGE_BROKER_HA_INFO: a master that is back announces itself before it registers.

        Without an address in it, a slave asks a master where its HA listener is.
        """
        fields = fields_of(request)
        if not self._role.is_slave and not fields["masterHaAddress"]:
            found = {**self._addresses, "masterFlushOffset": str(self._store.log.flushed)}
            return request.response(ResponseCode.SUCCESS, ext_fields=found)
        if self._role.is_slave and fields["masterHaAddress"]:
            self._acting.give_way(YIELD_SECONDS)
            hands_over = request.ext_fields.get(HANDS_OVER) == "true"
            # Before the task that has just been created: that one hands nothing over.
            undecided = await self.end(hands_over=hands_over)
            # Its tables are followed once it is registered: until then it fetches what this slave has.
            self._role.found_master("", fields["masterHaAddress"])
            if hands_over:
                return request.response(ResponseCode.SUCCESS, body=UndecidedPops.of(undecided).encode())
        return request.response(ResponseCode.SUCCESS)

    def start(self) -> None:
        if self._bridge is not None:
            self._bridge.start()

    async def stop(self) -> None:
        await self.end()
        if self._bridge is not None:
            await self._bridge.stop()

    def _changed(self) -> None:
        if self._role.acts_as_master:
            self._begin()
        elif self._ending is None or self._ending.done():
            self._ending = asyncio.get_running_loop().create_task(self.end())

    def _begin(self) -> None:
        if self._bridge is None or self._is_running:
            return
        self._is_running = True
        self._bridge.open()
        log.info("escape: delayed messages, timers, POP retries and half messages go to other masters")
        if self._bridge.revive is not None:
            self._bridge.revive.begin()
        if self._bridge.transactions is not None:
            self._bridge.transactions.begin()
        self._deferred.schedule.start()
        if self._deferred.timer is not None:
            self._deferred.timer.start()

    async def end(self, *, hands_over: bool = False) -> Undecided:
        """End delivery, and count only what other masters have stored.

        With ``hands_over``, returns check points of POP that the master has to decide about.
        """
        if self._bridge is not None:
            async with self._lock:
                if self._is_running:
                    return await self._end(self._bridge, hands_over=hands_over)
        return []

    async def _end(self, bridge: EscapeBridge, *, hands_over: bool) -> Undecided:
        self._is_running = False
        schedule, timer = self._deferred.schedule, self._deferred.timer
        schedule.pause()
        # An Apache master takes over offsets only if their version is not older than its own.
        schedule.advance_version()
        if timer is not None:
            timer.pause()
        undecided: Undecided = []
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                if bridge.revive is not None and timer is not None:
                    undecided = await bridge.revive.finish(timer.read_time_ms, hands_over=hands_over)
                if bridge.transactions is not None:
                    await bridge.transactions.finish()
                await bridge.drained()
        except TimeoutError:
            log.warning("escape: messages that no other master took are left to the master")
            undecided = []
            schedule.roll_back()
            if timer is not None:
                timer.roll_back()
        bridge.close()
        log.info("escape: ended, %d messages delivered to other masters", bridge.escaped)
        return undecided
