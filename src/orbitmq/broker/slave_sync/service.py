"""SlaveSync (RocketMQ: SlaveSynchronize): keeps the tables of a slave equal to those of its master.

Topics and groups are compared by version in every round, which costs one small request each, and so are delay
levels and the timer. Consumer offsets follow in every round too while their table is small, and otherwise once in a
full period, as in RocketMQ.

A consumer offset, the progress of a delay level and that of the timer count messages as processed. They are applied
once the log of this slave has all that the master's had when it answered: a slave that takes over must not count a
message as processed that it does not have, nor one whose delivered copy it does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.slave_sync.acting import MASTER_ID, members_of_group
from orbitmq.broker.slave_sync.master_client import MasterClient, MasterRefusedError
from orbitmq.broker.slave_sync.offset_merge import OffsetMerge
from orbitmq.broker.slave_sync.tables import FollowedTables
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.store import StoreError
from orbitmq.store.config_tables import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.pop.assignment import PopAssignments
    from orbitmq.broker.registration.registrar import Registration
    from orbitmq.broker.runtime import BrokerRuntime, DeferredServices, Metadata
    from orbitmq.protocol.bodies import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner
    from orbitmq.store.timer.checkpoint import TimerCheckpoint

log = logging.getLogger("orbitmq.broker")

SMALL_OFFSETS = 256 * 1024
"""Bytes of a table of consumer offsets, some thousand, that is requested in every round."""

CATCH_UP_PAUSE = 0.02
CATCH_UP_CHECKS = 100
"""A round waits two seconds for the log of this slave, which usually gets records within milliseconds."""

_FAILURES = (MasterRefusedError, RemotingError, ProtocolError, StoreError)


class SlaveSync:
    """Follows the master of a slave from ``start`` to ``stop``."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        tables: FollowedTables,
        merge: OffsetMerge,
        ask_name_server: Callable[[Command], Awaitable[Command | None]],
    ) -> None:
        self._ask_name_server = ask_name_server
        self._runtime = runtime
        self._config = runtime.config
        self._role = runtime.role
        self._store = runtime.store
        self._writer = runtime.writer
        self._clock = runtime.clock
        self._offsets = metadata.offsets
        self._tables = tables
        self._merge = merge
        self._client: RemotingClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._address = ""
        self._trouble: str | None = ""
        """Current failure; None if there is none; empty before the first round."""
        self._last_full_ms: int | None = None
        self._offset_bytes = 0
        self.signer: RequestSigner | None = None
        self.tls: ClientTls | None = None
        """How it reaches a master that authenticates, or speaks TLS."""
        self.rounds = 0
        """Rounds that completed."""
        self.on_alive_change: list[Callable[[], None]] = []
        """Called when the master answers again, and when it does not answer any more."""

    def load(self) -> None:
        """Load what waits for the master. Raises StoreError."""
        self._merge.load()

    def start(self) -> None:
        self._client = RemotingClient(tls=self.tls, signer=self.signer)
        self._role.on_master_change.append(self._wake.set)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop following. Commits that the master did not get are persisted for the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        self._merge.persist()

    @property
    def is_in_sync(self) -> bool:
        """True if the last round completed."""
        return self.rounds > 0 and self._trouble is None

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except _FAILURES as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("slave_sync: round failed, will retry")
                self._failed(str(error))
            self._merge.persist()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._config.slave_metadata_check_period / 1000)

    async def _round(self) -> None:
        if not self._role.master_address:
            await self._look_for_master()
        address = self._role.master_address
        if not address:
            await self._follow_acting()
        if not address or address == self._config.broker_address:
            raise MasterRefusedError(f"no name server knows a master of {self._config.broker_name}")
        if address != self._address:
            self._address = address
            self._last_full_ms = None
            self._tables.forget_master()
        try:
            await self.sync(address)
        except (RemotingError, MasterRefusedError):
            await self._follow_acting()
            raise
        self.rounds += 1
        if self._trouble is not None:
            self._trouble = None
            log.info("slave_sync: tables are those of master %s", address)
            self._set_alive(True)

    async def _look_for_master(self) -> None:
        """Ask a name server for the master, which may be back: the next registration can be half a minute away."""
        members = await members_of_group(self._runtime, self._ask_name_server)
        if members and (address := members.get(MASTER_ID)):
            self._role.found_master(address, "")

    async def _follow_acting(self) -> None:
        """Take over how far another slave has come that acts for the master, to act after it.

        Raises MasterRefusedError, RemotingError, ProtocolError, StoreError.
        """
        if not self._config.enable_slave_acting_master:
            return
        assert self._client is not None, "not started"
        members = await members_of_group(self._runtime, self._ask_name_server) or {}
        if not members or min(members) in {MASTER_ID, self._role.broker_id}:
            return
        slave = MasterClient(members[min(members)], self._client)
        offsets, _ = await slave.consumer_offsets()
        delays = await slave.delay_offsets()
        timer = await self._timer_of(slave, with_counts=False)
        # Both have the log of a dead master, perhaps not to the same end.
        if self._store.log.end >= await slave.log_end():
            await self._take_progress(offsets, delays, timer)

    def _failed(self, trouble: str) -> None:
        if self._trouble != trouble:
            # The first round may come before the first answer of a name server.
            level = logging.WARNING if self.rounds or self._address else logging.INFO
            log.log(level, "slave_sync: failed, will retry: %s", trouble)
        self._trouble = trouble
        self._set_alive(False)

    def _set_alive(self, is_alive: bool) -> None:
        if self._role.is_master_alive is not is_alive:
            self._role.is_master_alive = is_alive
            for callback in self.on_alive_change:
                callback()

    # One round

    async def sync(self, address: str) -> None:
        """Take over the tables of the master at an address.

        Raises MasterRefusedError, RemotingError, ProtocolError, StoreError; what was taken over before stays.
        """
        assert self._client is not None, "not started"
        master = MasterClient(address, self._client)
        now = self._clock.now_ms()
        is_full = (
            self._last_full_ms is None
            or not 0 <= now - self._last_full_ms < self._config.slave_metadata_full_period
        )
        changed = await self._tables.follow_topics(master)
        changed |= await self._tables.follow_groups(master)
        if is_full or changed:
            self._tables.assignments.follow(await master.request_modes())
        offsets: ConsumerOffsetSerializeWrapper | None = None
        if is_full or self._offset_bytes <= SMALL_OFFSETS:
            offsets, self._offset_bytes = await master.consumer_offsets()
        delays = await master.delay_offsets()
        timer = await self._timer_of(master, with_counts=is_full)
        log_end = await master.log_end()
        if await self._caught_up(log_end):
            await self._take_progress(offsets, delays, timer)
            if is_full:
                self._last_full_ms = now
        if self._merge.unsent and self._store.log.end <= log_end:
            # A slave that is ahead of its master counts messages as consumed that the master will number again.
            given = await self._merge.give_back(master)
            if given:
                log.info("slave_sync: gave %d consumer offsets that were committed here to the master", given)

    async def _timer_of(self, master: MasterClient, *, with_counts: bool) -> TimerCheckpoint | None:
        timer = self._tables.deferred.timer
        if timer is None:
            return None
        try:
            checkpoint = await master.timer_checkpoint()
            if with_counts:
                timer.counts.follow(await master.timer_metrics())
                timer.counts.persist()
        except MasterRefusedError as error:
            # Masters with timerWheelEnable=false, and those before 5.0.
            log.debug("slave_sync: the master has no timer: %s", error)
            return None
        return checkpoint

    async def _caught_up(self, log_end: int) -> bool:
        """Wait until the log of this slave reaches an offset; False if it is far behind."""
        for _ in range(CATCH_UP_CHECKS):
            if self._store.log.end >= log_end:
                return True
            await asyncio.sleep(CATCH_UP_PAUSE)
        return self._store.log.end >= log_end

    async def _take_progress(
        self,
        offsets: ConsumerOffsetSerializeWrapper | None,
        delays: DelayOffsetSerializeWrapper,
        timer: TimerCheckpoint | None,
    ) -> None:
        if offsets is not None:
            await self._merge.adopt(offsets)
            self._offsets.persist()
        # This slave may have begun to act as master while it waited: the services then go by what they deliver.
        if not self._role.acts_as_master:
            await self._tables.deferred.schedule.follow(delays)
        if timer is not None and self._tables.deferred.timer is not None and not self._role.acts_as_master:
            self._tables.deferred.timer.follow(timer)
        await self._writer.saved(CONSUMER_OFFSETS)


def slave_sync_of(
    runtime: BrokerRuntime,
    metadata: Metadata,
    deferred: DeferredServices,
    assignments: PopAssignments,
    registration: Registration,
) -> SlaveSync:
    """The synchronization of a slave with these tables and services."""
    tables = FollowedTables(runtime, metadata, deferred, assignments)
    merge = OffsetMerge(metadata.offsets, runtime.writer)
    return SlaveSync(runtime, metadata, tables, merge, registration.ask)
