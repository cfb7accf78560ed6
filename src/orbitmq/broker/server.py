"""The broker: its tables, its processors and its ports, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING

from orbitmq.broker.attributes import BATCH_QUEUES, QUEUE_TYPE
from orbitmq.broker.client_requests import ClientRequests
from orbitmq.broker.clients import Clients
from orbitmq.broker.cold_pulls import ColdPulls
from orbitmq.broker.config_requests import ConfigRequests
from orbitmq.broker.config_writer import ConfigWriter
from orbitmq.broker.connection_requests import ConnectionRequests
from orbitmq.broker.consume_stats import ConsumeStatsRequests
from orbitmq.broker.filter_data import FilterData
from orbitmq.broker.flow import SendFlow
from orbitmq.broker.flushed_answers import FlushedAnswers
from orbitmq.broker.group_requests import GroupRequests
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.lock_requests import LockRequests
from orbitmq.broker.locks import QueueLocks
from orbitmq.broker.offset_requests import OffsetRequests
from orbitmq.broker.offset_reset import OffsetResets
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.pop_service import PopService
from orbitmq.broker.pull import PullRequests
from orbitmq.broker.pull_runs import PullRuns
from orbitmq.broker.query import QueryRequests
from orbitmq.broker.recall import RecallRequests
from orbitmq.broker.registration import Registration
from orbitmq.broker.relay import RelayRequests
from orbitmq.broker.reply import ReplyRequests
from orbitmq.broker.runtime_info import RuntimeInfo
from orbitmq.broker.schedule import ScheduleService
from orbitmq.broker.send import SendRequests
from orbitmq.broker.send_back import SendBackRequests
from orbitmq.broker.stats import BrokerStats
from orbitmq.broker.stats_requests import StatsRequests
from orbitmq.broker.taking import Takers
from orbitmq.broker.timer import TimerService
from orbitmq.broker.timer_counts import TimerCounts
from orbitmq.broker.timer_requests import TimerRequests
from orbitmq.broker.topic_requests import TopicRequests
from orbitmq.broker.topics import TopicTable
from orbitmq.broker.transaction import Transactions
from orbitmq.broker.transaction_check import TransactionChecks
from orbitmq.kernel import PullRuns as PullKernel
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message_id import UniqueIdFactory
from orbitmq.remoting import Limits, Listener, ListenError, RemotingServer
from orbitmq.store import LocalDisk, MessageStore, StoreError, SystemClock
from orbitmq.store.service import StoreService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeVar

    from orbitmq.broker.settings import BrokerSettings
    from orbitmq.remoting import Connection, Handler, ServerTls
    from orbitmq.store import Clock
    from orbitmq.store.disk import Disk

    T = TypeVar("T")

log = logging.getLogger("orbitmq.broker")

VIP_DISTANCE = 2
"""The VIP port is so far below the main one; clients compute it."""

MAIN_PORT_ONLY = frozenset(
    {
        *(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.PEEK_MESSAGE),
        *(RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO),
    }
)
"""Reading is not done on the VIP port, as in RocketMQ: it is there for sends that must not wait behind it."""

DRAIN_SECONDS = 3.0
"""How long answers that are owed may take when the broker stops."""

NOWHERE = bytes(8)
"""The born host of what a connection without an IP address sends."""


class Broker:
    """A broker. Sockets and timers are the running loop's; disk and clock are handed in."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.settings = settings
        self.disk = disk or LocalDisk()
        self.clock = clock or SystemClock()
        self._tls = tls
        self._timers: list[asyncio.Task[None]] = []
        self._server: RemotingServer | None = None
        self._takers: Takers | None = None
        self._is_stopping = False

    # Where it is

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        assert self._server is not None, "not started"
        return self._server.ports[0]

    @property
    def vip_port(self) -> int:
        assert self._server is not None, "not started"
        return self._server.ports[1]

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset() if self._server is None else self._server.connections

    # Starting

    async def start(self) -> None:
        """Open the store, read the tables, listen and register. Raises StoreError, RemotingError, ConfigError."""
        config = self.settings.broker
        if config.listen_port == 0:
            self.settings.set_listen_port(_free_pair(config.bind_address))
        self._open()
        try:
            await self.service.start()
            self._build()
            await self._listen()
        except BaseException:
            await self.service.stop()
            raise
        self.flow.start()
        self.schedule.start()
        self.checks.start()
        if self.timer is not None:
            self.timer.start()
        self.pop.start()
        self.registration.start()
        for seconds, job in (
            (config.flush_consumer_offset_interval / 1000, self.pop.persist_offsets),
            (10.0, self.clients.expire),
            (10.0, self.locks.expire),
            (10.0, self.filters.persist),
            (10.0, self.pop.orders.persist),
            (config.transaction_metric_flush_interval / 1000, self.transactions.counts.persist),
            (1.0, self.stats.sample),
        ):
            self._timers.append(asyncio.create_task(_every(seconds, job)))

    def _open(self) -> None:
        settings, disk, clock = self.settings, self.disk, self.clock
        config = settings.broker
        self.writer = ConfigWriter(disk, settings.store.path("config"), self._run_blocking)
        self.topics = TopicTable(self.writer, config, clock, timer_wheel=settings.store.timer_wheel_enable)
        self.topics.load()
        self.groups = GroupTable(self.writer, config, clock)
        self.groups.load()
        self.offsets = OffsetTable(self.writer, clock, config.consumer_offset_update_version_step)
        self.offsets.load()
        self.filters = FilterData(self.writer, config, clock)
        self.filters.load()
        # As long as the filter makes them, whatever the file says: tools show it.
        settings.store.bit_map_length_consume_queue_ext = self.filters.bloom.bit_count
        self.store = MessageStore.open(
            settings.store, disk=disk, clock=clock, batch_topics=self.topics.batch_topics()
        )
        self.service = StoreService(self.store)
        archived = self.service.retention.archived
        archived.committed, archived.is_own = self.offsets.query, self.topics.is_system_topic

    def _run_blocking(self, work: Callable[[], T]) -> Awaitable[T]:
        return self.service.run_blocking(work)

    def _build(self) -> None:
        config, store, clock = self.settings.broker, self.store, self.clock
        self.clients = Clients(config, clock, self.filters)
        self.locks = QueueLocks(clock)
        self.stats = BrokerStats(
            clock,
            config.broker_cluster_name,
            detailed=config.enable_detail_stat,
            max_idle_minutes=config.max_stats_idle_time_in_minutes,
            is_system_topic=self.topics.is_system_topic,
        )
        self.schedule = ScheduleService(config, store, self.writer, clock, self.stats, self.service.flushed)
        self.schedule.load()
        self.transactions = Transactions(
            config, store, self.topics, self.schedule, self.offsets, self.stats, self.writer, clock,
            self.service.flushed,
        )  # fmt: skip
        self.transactions.load()
        self.checks = TransactionChecks(
            config, store, self.topics, self.clients, self.offsets, self.transactions, self.stats, clock,
            self.service.flushed,
        )  # fmt: skip
        self.timer: TimerService | None = None
        if store.config.timer_wheel_enable:
            self.timer = TimerService(
                store, clock, self.stats, self.service.flushed, self.service.run_blocking,
                TimerCounts(self.writer, clock),
            )  # fmt: skip
            self.timer.load()
        self.flow = SendFlow(config, store, clock)
        self.registration = Registration(config, self.topics, clock, ha_address=self.settings.ha_address)
        self.topics.on_change = self._topics_changed
        self.cold_pulls = ColdPulls(store.reader.cold, self._run_blocking)
        self.pulls = PullRequests(
            config, store, self.topics, self.groups, self.offsets, self.clients, self.filters, self.stats,
            clock.now_ms, self.cold_pulls,
        )  # fmt: skip
        self.flushed_answers = FlushedAnswers(self.service, store.config.sync_flush_timeout)
        self.pop = PopService(
            config, self.service, self.topics, self.groups, self.offsets, self.clients, self.registration,
            self.timer, self.writer, self.flushed_answers, self.stats, clock,
        )  # fmt: skip
        self.pop.load()

    async def _listen(self) -> None:
        config = self.settings.broker
        sends = self._send_requests()
        handlers = self._handlers(sends)
        self._takers = takers = self._takers_of(sends)
        log.debug("requests are taken by the %s", "general path" if takers is None else "compiled kernel")
        vip = {code: handler for code, handler in handlers.items() if code not in MAIN_PORT_ONLY}
        self._server = RemotingServer(
            [
                Listener(handlers, config.listen_port, config.bind_address, takers),
                Listener(
                    vip,
                    max(config.listen_port - VIP_DISTANCE, 0),
                    config.bind_address,
                    None if takers is None else takers.without_pulls(),
                ),
            ],
            limits=Limits(idle_seconds=config.server_channel_max_idle_time_seconds),
            tls=self._tls,
            on_open=_note_born_host,
            on_close=self._connection_closed,
        )
        await self._server.start()

    def _takers_of(self, sends: SendRequests) -> Takers | None:
        """What the compiled kernel takes; None if it was not built."""
        if PullKernel is None:
            return None
        runs = sends.runs()
        acks = None if runs is None else self.pop.ack_runs(self.topics, self.timer)
        pulls = PullRuns(
            PullKernel, self.store, self.pulls, self.topics, self.groups, self.offsets, self.clients, self.stats
        )
        return Takers(runs, acks, pulls)

    def _send_requests(self) -> SendRequests:
        config = self.settings.broker
        address = host_bytes(config.broker_address)
        unique_ids = UniqueIdFactory(address[:-4], os.getpid(), id(self), self.clock.now_ms)
        return SendRequests(
            config, self.store, self.topics, self.groups, self.schedule, self.timer, self.transactions, self.locks,
            self.stats, self.flow, self.flushed_answers, unique_ids,
        )  # fmt: skip

    def _handlers(self, sends: SendRequests) -> dict[int, Handler]:
        config, store, clock = self.settings.broker, self.store, self.clock
        topics, groups, offsets, clients = self.topics, self.groups, self.offsets, self.clients
        parts = (
            sends,
            SendBackRequests(config, store, topics, groups, self.schedule, self.stats),
            RecallRequests(config, store, topics, self.timer, self.stats, self.flushed_answers, clock),
            TimerRequests(self.timer),
            ReplyRequests(config, store, sends, clients, self.stats, self.flow, clock, self.service.flushed),
            self.pulls,
            OffsetRequests(store, topics, groups, clients, offsets, self.writer),
            OffsetResets(config, store, topics, groups, clients, offsets, self.writer),
            ConsumeStatsRequests(config, store, topics, groups, clients, offsets, self.stats, clock),
            QueryRequests(store, clients, self.filters),
            ClientRequests(config, clock, clients, topics, groups),
            ConnectionRequests(clients),
            LockRequests(self.locks),
            RelayRequests(config, clients, topics, groups, store),
            TopicRequests(
                config,
                self.service,
                topics,
                offsets,
                clients,
                self.stats,
                self.writer,
                self.registration.settled,
                self.timer,
            ),
            GroupRequests(groups, offsets, config, self.writer, self.stats),
            ConfigRequests(
                self.settings,
                self.disk,
                self._run_blocking,
                clock,
                self._settings_changed,
                self._permission_changed,
            ),
            StatsRequests(self.stats),
            RuntimeInfo(self.settings, store, self.stats, self.schedule, self.timer, self.flow, clock),
            self.schedule,
            self.transactions,
            self.pop,
        )
        handlers: dict[int, Handler] = {}
        for part in parts:
            twice = handlers.keys() & part.handlers.keys()
            assert not twice, f"two processors for {twice}"
            handlers.update(part.handlers)
        return handlers

    # While it runs

    def _topics_changed(self, names: Sequence[str]) -> None:
        for name in names:
            if self.topics.configs[name].attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
                self.store.queues.batch_topics.add(name)
        self.registration.topics_changed(names)

    def _settings_changed(self) -> None:
        if self._takers is not None:
            self._takers.renew()

    def _permission_changed(self) -> None:
        self.topics.bump()
        self.registration.register_soon()

    def _connection_closed(self, connection: Connection, _error: Exception | None) -> None:
        self.clients.closed(connection)

    # Stopping

    async def stop(self) -> None:
        """Take no more messages, answer what is owed, close the store; in seconds. Raises StoreError."""
        if self._server is None or self._is_stopping:
            return
        self._is_stopping = True
        await self.registration.wipe_write_permission()
        self.pulls.held.release()
        await self.cold_pulls.stop()
        self.pulls.priority.release()
        self.pop.release()
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        await self._server.stop(DRAIN_SECONDS)
        await self.registration.stop()
        await self.schedule.stop()
        await self.checks.stop()
        await self.pop.stop()
        if self.timer is not None:
            await self.timer.stop()
        self.flow.stop()
        try:
            self.topics.persist()
            self.groups.persist()
            self.offsets.persist()
            self.filters.persist()
            self.transactions.counts.persist()
            await self.writer.stop()
        except StoreError as error:
            log.error("the tables could not be written: %s", error)
        finally:
            await self.service.stop()


async def _every(seconds: float, job: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            job()
        except Exception:
            # The next round may work; without it the broker would slowly forget how to work.
            log.exception("%s failed", job.__qualname__)


def _note_born_host(connection: Connection) -> None:
    """Every message that comes over a connection carries its address."""
    try:
        connection.state = host_bytes(connection.remote_address)
    except ProtocolError:
        connection.state = NOWHERE


def _free_pair(host: str) -> int:
    """A port that is free together with the one two below."""
    for _ in range(100):
        with contextlib.ExitStack() as sockets:
            try:
                main = sockets.enter_context(socket.create_server((host, 0)))
                port: int = main.getsockname()[1]
                sockets.enter_context(socket.create_server((host, port - VIP_DISTANCE)))
            except OSError:
                continue
            return port
    raise ListenError(f"no two ports that are {VIP_DISTANCE} apart are free on {host}")
