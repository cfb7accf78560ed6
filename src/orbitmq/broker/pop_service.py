"""All of POP in one: its parts built, started and stopped together, and positions of groups kept safely."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.ack_runs import AckRuns
from orbitmq.broker.flush_soon import FlushSoon
from orbitmq.broker.notification import Notifications
from orbitmq.broker.pop import PopRequests
from orbitmq.broker.pop_ack import PopAcks
from orbitmq.broker.pop_assignment import PopAssignments
from orbitmq.broker.pop_checkpoints import PopJournal
from orbitmq.broker.pop_checks import PopChecks
from orbitmq.broker.pop_invisible import PopInvisibleTimes
from orbitmq.broker.pop_offsets import PopOffsets
from orbitmq.broker.pop_orders import PopOrders
from orbitmq.broker.pop_peek import PopPeeks
from orbitmq.broker.pop_revive import ReviveService
from orbitmq.kernel import AckRuns as Kernel
from orbitmq.store import StoreError
from orbitmq.store.config_json import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.broker.flushed_answers import FlushedAnswers
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.pop_checkpoints import Timer
    from orbitmq.broker.registration import Registration
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer import TimerService
    from orbitmq.broker.topics import TopicTable
    from orbitmq.remoting import Handler
    from orbitmq.store import Clock
    from orbitmq.store.service import StoreService

log = logging.getLogger("orbitmq.broker")


class PopService:
    """POP on a broker. Without a timer pops are refused, and nothing is brought back."""

    def __init__(
        self,
        config: BrokerConfig,
        service: StoreService,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: Clients,
        registration: Registration,
        timer: Timer | None,
        writer: ConfigWriter,
        flushed: FlushedAnswers,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        store = service.store
        self._service = service
        self._stats = stats
        self._offsets = offsets
        self._writer = writer
        self.orders = PopOrders(writer, topics, groups, clock)
        self.places = PopOffsets(config, store, offsets, self.orders, clock)
        checks = PopChecks(config, topics, groups)
        self.journal = None if timer is None else PopJournal(config, store, timer, stats, clock)
        self.pops = PopRequests(
            config, store, topics, checks, offsets, self.places, self.orders, self.journal, flushed, stats, clock
        )
        acks = PopAcks(
            config, store, checks, offsets, self.places, self.orders, self.journal, self.pops, flushed, stats
        )
        invisible = PopInvisibleTimes(store, checks, offsets, self.orders, self.journal, acks, flushed, clock)
        self.notifications = Notifications(
            config, store, topics, checks, self.places, self.orders, self.pops, clock
        )
        self.assignments = PopAssignments(config, topics, groups, clients, registration, writer, clock)
        self.peeks = PopPeeks(config, store, topics, checks, self.places, stats)
        self._parts = (self.pops, acks, invisible, self.peeks, self.notifications, self.assignments)
        self.revive: ReviveService | None = None
        if timer is not None and self.journal is not None:
            self.revive = ReviveService(
                config, store, topics, groups, offsets, self.places, self.journal, timer, stats, clock,
                FlushSoon(store, service.flushed),
            )  # fmt: skip
        self._persisting: asyncio.Task[None] | None = None

    @property
    def handlers(self) -> dict[int, Handler]:
        return {code: handler for part in self._parts for code, handler in part.handlers.items()}

    def ack_runs(self, topics: TopicTable, timer: TimerService | None) -> AckRuns | None:
        """What takes acknowledgements by the run; None if the kernel was not built, or nothing is popped here."""
        journal, store = self.journal, self._service.store
        if Kernel is None or journal is None or timer is None or not store.appender.runs.takes_all:
            return None
        return AckRuns(Kernel, store, topics, timer, journal, self.places, self._stats)

    def load(self) -> None:
        """Take over what lies on the disk. Raises StoreError."""
        self.orders.load()
        self.assignments.load()

    def start(self) -> None:
        if self.revive is not None:
            self.revive.start()

    def release(self) -> None:
        """Answer those who wait, because the broker stops."""
        self.pops.held.release()
        self.notifications.held.release()

    async def stop(self) -> None:
        """Bring back no more, and have on the disk what the positions of groups rest on."""
        if self.revive is not None:
            self.revive.stop()
        if self._persisting is not None:
            await self._persisting
        self.orders.persist()
        try:
            await self._service.flushed(self._service.store.log.end)
        except StoreError as error:
            log.error("the log could not be flushed: %s", error)

    def persist_offsets(self) -> None:
        """Have the positions of groups written, after the flush of what they rest on.

        A group is moved on by a pop because a check point will bring the messages back. A power cut that left the
        position and not the check point would lose them.
        """
        if self._persisting is None or self._persisting.done():
            self._persisting = asyncio.get_running_loop().create_task(self._persist_offsets())

    async def _persist_offsets(self) -> None:
        table = self._offsets.take_changed()
        if table is None:
            return
        if self.journal is not None and self.journal.end > self._service.store.log.flushed:
            try:
                await self._service.flushed(self.journal.end)
            except StoreError as error:
                self._offsets.mark_changed()
                log.warning("how far groups have come is not kept: %s", error)
                return
        self._writer.mark(CONSUMER_OFFSETS, lambda: table)
