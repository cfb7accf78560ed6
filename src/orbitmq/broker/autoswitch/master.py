"""AutoSwitchMaster (RocketMQ: AutoSwitchHAService): the HA listener of a master that the controller elected.

Answers to sends wait for the replicas of the sync state set, and leave only while the lease of this master is
valid. Records are readable up to the confirm offset, which is what no election can take away.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.broker.autoswitch.slave_connection import AutoSwitchConnection
from orbitmq.broker.ha.master import ReplicationMaster
from orbitmq.store.errors import NotCopiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.autoswitch.term import Replica
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.events.journal import EventJournal
    from orbitmq.broker.ha.handshake import MasterGate
    from orbitmq.broker.ha.slave_connection import SlaveConnection
    from orbitmq.store import MessageStore
    from orbitmq.store.background.service import StoreService
    from orbitmq.store.replication.epochs import Epochs
    from orbitmq.store.replication.sync_state import SyncState

ADVANCE_SECONDS = 0.01
"""Interval at which the confirm offset follows records that no answer waits for."""

DISPATCH_SLICE = 2000
"""Records that become readable before the event loop runs something else."""


class AutoSwitchMaster(ReplicationMaster):
    """Serves the slaves of one term."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        service: StoreService,
        journal: EventJournal,
        admits: Callable[[str], str | None] | None,
        gate: MasterGate,
        replica: Replica,
    ) -> None:
        super().__init__(config, store, service, journal, admits, gate)
        assert replica.sync is not None, "not a master"
        self.sync: SyncState = replica.sync
        self._replica = replica
        self._advancing: asyncio.TimerHandle | None = None
        self._dispatching: asyncio.Handle | None = None
        self._copying: set[asyncio.Future[None]] = set()
        self._is_stopping = False

    @property
    def own_id(self) -> int:
        return self._replica.term.own_id

    @property
    def epochs(self) -> Epochs:
        return self._replica.epochs.epochs

    @property
    def confirmed(self) -> int:
        return self.sync.confirmed

    async def start(self, host: str, port: int) -> None:
        await super().start(host, port)
        self._advance()
        if self.sync.waits_for_all:
            self._repeat()

    async def stop(self) -> None:
        for handle in (self._advancing, self._dispatching):
            if handle is not None:
                handle.cancel()
        waiting, self._waiting = list(self._waiting), type(self._waiting)()
        for _, future in waiting:
            # Answered with FLUSH_SLAVE_TIMEOUT: what the replicas lack may be cut off.
            future.cancel()
        await super().stop()

    def _connection(self) -> SlaveConnection:
        return AutoSwitchConnection(self)

    # Answers that wait

    @property
    def may_answer(self) -> bool:  # type: ignore[override]
        """True while no other master can have been elected without the knowledge of this one."""
        return self._replica.lease.is_valid

    @property
    def is_in_doubt(self) -> bool:
        """True if controllers may hear this master, but it does not hear them."""
        return self._replica.lease.is_in_doubt

    @property
    def is_short(self) -> bool:
        return self.sync.is_short

    def replicated(self, end: int) -> asyncio.Future[None] | None:
        """A future that completes when enough replicas have the log up to ``end``; None if they have it already."""
        future = super().replicated(end)
        self._advance()
        return future

    def _acked_end(self, log_end: int) -> int:  # noqa: ARG002 - members of the set count, however far behind
        return self.sync.acked_end(self.slave_ends())

    async def copied(self, end: int) -> None:
        """Wait until no election can take away the log up to ``end``. Raises NotCopiedError after a while.

        What a broker remembers of its own progress must not outlive the records that it follows from.
        """
        if not self.sync.waits_for_all:
            return
        future = self.replicated(end)
        if future is None:
            return
        if not self._is_stopping:
            self._copying.add(future)
            await asyncio.wait([future], timeout=self.store.config.sync_flush_timeout / 1000)
            self._copying.discard(future)
        if not future.done() or future.cancelled():
            future.cancel()
            raise NotCopiedError(f"replicas in sync lack the end of the log, {end}")

    @property
    def may_lose_end(self) -> bool:
        return self.sync.waits_for_all and self.sync.confirmed < self.store.log.end

    def give_up(self) -> None:
        """The broker stops: do not wait for replicas any more."""
        self._is_stopping = True
        for future in self._copying:
            future.cancel()

    def slave_ends(self) -> dict[int, int]:
        """Acknowledged ends of the log, by the ids of the slaves that count."""
        return {
            slave.broker_id: slave.acked
            for slave in self.slaves
            if isinstance(slave, AutoSwitchConnection) and slave.counts
        }

    def acknowledged(self, slave: SlaveConnection) -> None:
        self.acks.update(slave, slave.acked)
        if isinstance(slave, AutoSwitchConnection):
            is_new = slave.counts and slave.broker_id not in self.sync.effective
            if is_new and self.may_join(slave):
                self._replica.on_acks()
        self._advance()
        self._check_waiting()

    def set_changed(self) -> None:
        """Handle another sync state set: fewer acknowledgements may be needed now."""
        self._advance()
        self._check_waiting()
        if self.on_change is not None:
            self.on_change()

    # The confirm offset

    def _advance(self) -> None:
        """Raise the confirm offset, and make readable what it covers."""
        log_end = self.store.log.committed
        confirmed = self.sync.advance(log_end, self.slave_ends())
        self.store.checkpoint.confirm_phy_offset = confirmed
        if self.sync.waits_for_all:
            self.store.readable_to = confirmed
            self._dispatch()

    def _dispatch(self) -> None:
        self._dispatching = None
        if self.store.catch_up(DISPATCH_SLICE) >= DISPATCH_SLICE:
            self._dispatching = asyncio.get_running_loop().call_soon(self._dispatch)

    def _repeat(self) -> None:
        self._advancing = asyncio.get_running_loop().call_later(ADVANCE_SECONDS, self._repeat)
        if self.sync.confirmed < self.store.log.committed:
            self._advance()

    # Slaves

    def greeted(self, slave: AutoSwitchConnection) -> None:
        """Handle a handshake: what an earlier connection of the same slave acknowledged does not count any more."""
        for other in list(self.slaves):
            is_same = isinstance(other, AutoSwitchConnection) and other.broker_id == slave.broker_id
            if is_same and other is not slave:
                other.close("the slave has connected again")

    def begun(self, slave: SlaveConnection) -> None:
        super().begun(slave)
        self._replica.on_acks()

    def disconnected(self, slave: SlaveConnection, error: Exception | None) -> None:
        is_known = slave in self.slaves
        super().disconnected(slave, error)
        if is_known:
            self._replica.on_acks()

    def may_join(self, slave: AutoSwitchConnection) -> bool:
        """True for a slave that may be added to the set: it has all that was confirmed, and follows the log."""
        last = self.epochs.last
        is_ahead = last is None or slave.acked >= last.start
        # Without waits_for_all the confirm offset is the end of the log.
        has_all = slave.acked >= self.sync.confirmed or not self.sync.waits_for_all
        return slave.counts and is_ahead and has_all and slave.is_at_end

    def wanted_set(self) -> frozenset[int]:
        """The replicas that should be in the sync state set now."""
        now = self.now()
        limit = self.store.config.ha_max_time_slave_not_catchup / 1000
        wanted = {self.own_id}
        for slave in self.slaves:
            if not isinstance(slave, AutoSwitchConnection) or not slave.counts:
                continue
            if slave.broker_id not in self.sync.members:
                is_in = self.may_join(slave)
            else:
                # A member that came back without what it had acknowledged must not be elected.
                lost_some = self.sync.waits_for_all and slave.acked < self.sync.confirmed
                is_in = not lost_some and slave.lag_seconds(now) <= limit
            if is_in:
                wanted.add(slave.broker_id)
        return frozenset(wanted)
