"""PopService: builds the parts of POP, and starts and stops them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.fast_path.ack import AckFastPath
from orbitmq.broker.fast_path.pop import PopFastPath
from orbitmq.broker.lite.service import LiteService
from orbitmq.broker.pop.ack import PopAcks
from orbitmq.broker.pop.assignment import PopAssignments
from orbitmq.broker.pop.change_invisible_time import PopInvisibleTimes
from orbitmq.broker.pop.checkpoint import CheckpointWriter
from orbitmq.broker.pop.inflight import PopOffsets
from orbitmq.broker.pop.notification import Notifications
from orbitmq.broker.pop.order_info import PopOrders
from orbitmq.broker.pop.peek import PopPeeks
from orbitmq.broker.pop.processor import PopRequests
from orbitmq.broker.pop.revive import ReviveService
from orbitmq.broker.pop.validation import PopChecks
from orbitmq.store import StoreError

if TYPE_CHECKING:
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.pop.checkpoint import Timer
    from orbitmq.broker.registration.registrar import Registration
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.remoting import Handler

log = logging.getLogger("orbitmq.broker")


class PopService:
    """POP of a broker. Without a timer pops are refused, and nothing is redelivered."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        clients: Clients,
        registration: Registration,
        timer: Timer | None,
    ) -> None:
        config, store, clock = runtime.config, runtime.store, runtime.clock
        topics, groups, offsets = metadata.topics, metadata.groups, metadata.offsets
        self._runtime = runtime
        self._offsets = offsets
        self._store = store
        self._flushed = runtime.flushed
        self._stats = runtime.stats
        writer = runtime.writer
        self.orders = PopOrders(writer, topics, groups, clock)
        self.pop_offsets = PopOffsets(config, store, offsets, self.orders, clock)
        checks = PopChecks(config, topics, groups)
        self.checkpoints = None if timer is None else CheckpointWriter(config, store, timer, runtime.stats, clock)
        self.pops = PopRequests(runtime, metadata, checks, self.pop_offsets, self.orders, self.checkpoints)
        self.lite = lite = LiteService(runtime, metadata, checks)
        acks = PopAcks(
            runtime, offsets, checks, self.pop_offsets, self.orders, self.checkpoints, self.pops, lite.acks
        )
        invisible = PopInvisibleTimes(runtime, offsets, checks, self.orders, self.checkpoints, acks, lite.acks)
        self.notifications = Notifications(runtime, topics, checks, self.pop_offsets, self.orders, self.pops)
        self.assignments = PopAssignments(config, topics, groups, clients, registration, writer, clock)
        self.peeks = PopPeeks(runtime, topics, checks, self.pop_offsets)
        self._parts = (self.pops, acks, invisible, self.peeks, self.notifications, self.assignments, lite)
        self.revive: ReviveService | None = None
        if timer is not None and self.checkpoints is not None:
            self.revive = ReviveService(runtime, metadata, self.pop_offsets, self.checkpoints, timer)

    @property
    def handlers(self) -> dict[int, Handler]:
        return {code: handler for part in self._parts for code, handler in part.handlers.items()}

    def fast_path(self, epoch: RouteEpoch, topics: TopicTable, timer: TimerService | None) -> AckFastPath | None:
        """The fast path of acknowledgements; None if this broker has no POP or its store needs the Python path."""
        checkpoints = self._checkpoints_of(timer)
        if checkpoints is None or timer is None:
            return None
        return AckFastPath(epoch, self._store, topics, timer, checkpoints, self.pop_offsets, self._stats)

    def pop_fast_path(
        self, epoch: RouteEpoch, topics: TopicTable, timer: TimerService | None
    ) -> PopFastPath | None:
        """The same for pops."""
        checkpoints = self._checkpoints_of(timer)
        if checkpoints is None or timer is None:
            return None
        return PopFastPath(
            epoch, self._runtime, topics, self._offsets, timer, checkpoints, self.pop_offsets, self.pops
        )

    def _checkpoints_of(self, timer: TimerService | None) -> CheckpointWriter | None:
        """The writer of check points if native code may append them. Responses that wait for slaves are made by the
        Python path."""
        runtime = self._runtime
        if timer is None or not runtime.store.appender.native.accepts_all or runtime.flush_waiters.is_needed:
            return None
        return self.checkpoints

    @property
    def checkpoint_end(self) -> int:
        """The end of the last check point in the log: offsets are persisted after its flush."""
        return 0 if self.checkpoints is None else self.checkpoints.end

    def load(self) -> None:
        """Load the persisted tables. Raises StoreError."""
        self.orders.load()
        self.assignments.load()

    def start(self) -> None:
        if self.revive is not None:
            self.revive.start()

    def release(self) -> None:
        """Answer all held requests, because the broker stops."""
        self.pops.held.release()
        self.notifications.held.release()
        self.lite.pops.held.release()

    async def stop(self) -> None:
        """Stop redelivery, and flush the check points that consumer offsets depend on."""
        if self.revive is not None:
            self.revive.stop()
        await self.lite.expiry.stop()
        self.orders.persist()
        try:
            await self._flushed(self._store.log.end)
        except StoreError as error:
            log.error("pop: flush of the log failed at stop: %s", error)
