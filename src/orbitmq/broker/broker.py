"""Broker: composes tables, processors, services and ports, and starts and stops them together."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
import socket
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.auth.store import UserTable
from orbitmq.broker.auth_hook import access_of, environment_of
from orbitmq.broker.autoswitch.master import AutoSwitchMaster
from orbitmq.broker.autoswitch.parts import begin_term, replication_of, role_of, slave_of
from orbitmq.broker.clients.admin import ConnectionRequests
from orbitmq.broker.clients.callbacks import RelayRequests
from orbitmq.broker.clients.consumer_filters import ConsumerFilters
from orbitmq.broker.clients.heartbeat import ClientRequests
from orbitmq.broker.clients.lock_processor import LockRequests
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import Clients
from orbitmq.broker.clients.shares import shares_of_topics
from orbitmq.broker.config.admin import ConfigRequests
from orbitmq.broker.config.metrics_settings import MetricsExporterType
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.config.role_settings import warn_of_role
from orbitmq.broker.deferred.target_queue import TargetQueues
from orbitmq.broker.escape.bridge import EscapeBridge
from orbitmq.broker.escape.pre_online import PreOnline
from orbitmq.broker.escape.revive import EscapeRevive
from orbitmq.broker.escape.services import EscapeServices
from orbitmq.broker.escape.transactions import EscapeTransactions
from orbitmq.broker.events.admin import EventRequests
from orbitmq.broker.events.journal import EventJournal
from orbitmq.broker.events.watch import EventWatch
from orbitmq.broker.fast_path.dispatcher import FastPath
from orbitmq.broker.fast_path.epoch import RouteEpoch
from orbitmq.broker.fast_path.offsets import OffsetFastPath
from orbitmq.broker.fast_path.pull import PullFastPath
from orbitmq.broker.fast_path.signed import SignedFastPath, SignedRequests
from orbitmq.broker.ha.handshake import MasterGate
from orbitmq.broker.ha.peers import admission
from orbitmq.broker.ha.slave_refusals import guarded
from orbitmq.broker.ha.status import HaStatusRequests
from orbitmq.broker.metadata.attributes import BATCH_QUEUES, QUEUE_TYPE
from orbitmq.broker.metadata.group_admin import GroupRequests
from orbitmq.broker.metadata.lost_tables import TableStates, report_lost_tables
from orbitmq.broker.metadata.subscription_groups import GroupTable
from orbitmq.broker.metadata.topic_admin import TopicRequests
from orbitmq.broker.metadata.topic_recovery import recover_topics
from orbitmq.broker.metadata.topics import TopicTable
from orbitmq.broker.metrics.requests import MeasuredFastPath
from orbitmq.broker.metrics.service import MetricsService, MetricsSources
from orbitmq.broker.offsets.lag import ConsumeStatsRequests
from orbitmq.broker.offsets.persistence import OffsetPersistence
from orbitmq.broker.offsets.processor import OffsetRequests
from orbitmq.broker.offsets.reset import OffsetResets
from orbitmq.broker.offsets.table import OffsetTable
from orbitmq.broker.pop.service import PopService
from orbitmq.broker.pull.cold_read import ColdPulls
from orbitmq.broker.pull.processor import PullRequests
from orbitmq.broker.query.processor import QueryRequests
from orbitmq.broker.registration.cluster_copy import ClusterCopy
from orbitmq.broker.registration.registrar import Registration
from orbitmq.broker.runtime import BrokerRuntime, DeferredServices, Metadata
from orbitmq.broker.schedule.service import ScheduleService
from orbitmq.broker.send.flow_control import SendFlow
from orbitmq.broker.send.flush_waiters import FlushWaiters
from orbitmq.broker.send.processor import SendRequests
from orbitmq.broker.send.reply import ReplyRequests
from orbitmq.broker.send.retry import SendBackRequests
from orbitmq.broker.send.topic_quota import with_topic_quota
from orbitmq.broker.slave_sync.acting import ActingMaster
from orbitmq.broker.slave_sync.service import SlaveSync, slave_sync_of
from orbitmq.broker.stats.admin import StatsRequests
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.stats.runtime_info import RuntimeInfo
from orbitmq.broker.timer.admin import TimerRequests
from orbitmq.broker.timer.counts import TimerCounts
from orbitmq.broker.timer.recall import RecallRequests
from orbitmq.broker.timer.service import TimerService
from orbitmq.broker.transaction.check_service import TransactionChecks
from orbitmq.broker.transaction.processor import Transactions
from orbitmq.filter import prepare
from orbitmq.platform.memory_budget import budget_of
from orbitmq.platform.settings import ConfigError
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.broker_events import EventKind
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message.message_id import UniqueIdFactory
from orbitmq.remoting import Listener, ListenError, RemotingServer
from orbitmq.remoting.processor import run_in_background
from orbitmq.remoting.tls.context import ServerCertificates
from orbitmq.store import LocalDisk, MessageStore, StoreError, SystemClock
from orbitmq.store.append.appender import REPLICA
from orbitmq.store.background.service import StoreService
from orbitmq.store.config_tables import TOPICS
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeVar

    from orbitmq.auth.access import AccessControl
    from orbitmq.auth.requirements import Environment
    from orbitmq.broker.autoswitch.term import Replica
    from orbitmq.broker.config.loader import BrokerSettings
    from orbitmq.broker.ha.slave import ReplicationSlave
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.memory_budget import MemoryBudget
    from orbitmq.remoting import Connection, Handler, RemotingClient, ServerTls
    from orbitmq.remoting.interceptor import FrameInterceptor
    from orbitmq.store import Clock

    T = TypeVar("T")

log = logging.getLogger("orbitmq.broker")

VIP_DISTANCE = 2
"""The VIP port is the main port minus this; clients compute it."""

HA_DISTANCE = 1
"""The port for slaves is the main port plus this unless ``haListenPort`` is set."""

MAIN_PORT_ONLY = frozenset(
    {
        *(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.PEEK_MESSAGE),
        *(
            RequestCode.POP_MESSAGE,
            RequestCode.POP_LITE_MESSAGE,
            RequestCode.NOTIFICATION,
            RequestCode.POLLING_INFO,
        ),
    }
)
"""Requests that read are not served on the VIP port, as in RocketMQ: it is for sends, which must not wait."""

DRAIN_SECONDS = 3.0
"""Time-out for pending responses when the broker stops."""

UNKNOWN_HOST = bytes(8)
"""The born host of messages from a connection without an IP address."""


class Broker:
    """A broker. Sockets and timers belong to the running event loop; disk, clock and random source are injected."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        tls: ServerTls | None = None,
        memory: MemoryBudget | None = None,
        random_source: random.Random | None = None,
        access: AccessControl | None = None,
        replica: Replica | None = None,
    ) -> None:
        """``memory`` is a budget shared with other servers; without it, the one of its settings.

        ``access`` is shared with a name server of this process, which then knows the same users. ``replica``: the
        part that a controller gave this broker, in controller mode.
        """
        if settings.broker.enable_controller_mode and replica is None:
            raise ConfigError("enableControllerMode=true: start this broker with `orbitmq broker -c FILE`")
        self.settings = settings
        self.replica = replica
        self.memory = memory or budget_of(settings.broker.remoting_memory_budget)
        self.disk = disk or LocalDisk()
        self.clock = clock or SystemClock()
        self.random = random_source or random.Random()
        self.access = access or access_of(settings, self.disk, self.clock)
        self._tls = tls or settings.broker.server_tls
        self._timers: list[asyncio.Task[None]] = []
        self._preparing: asyncio.Task[None] | None = None
        self._server: RemotingServer | None = None
        self.metrics: MetricsService | None = None
        self._fast_path: FastPath | None = None
        self._is_stopping = False

    # Addresses

    @property
    def port(self) -> int:
        """The main port, once the broker listens."""
        assert self._server is not None, "not started"
        return self._server.ports[0]

    @property
    def vip_port(self) -> int:
        assert self._server is not None, "not started"
        return self._server.ports[1]

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset() if self._server is None else self._server.connections

    def hold(self, *, is_held: bool) -> None:
        """Read no requests, or read them again: a broker that hangs, for tests."""
        assert self._server is not None, "not started"
        (self._server.hold if is_held else self._server.release)()

    def connect_in_process(self, client: RemotingClient, address: str) -> Connection:
        """A connection of a client in this process, without a socket. Raises RemotingError."""
        assert self._server is not None, "not started"
        return client.connect_in_process(self._server, address)

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
            if self.metrics is not None:
                await self._start_metrics(self.metrics)
        except BaseException:
            await self.service.stop()
            raise
        await self._start_replication()
        self.journal.record(EventKind.BROKER_START, config.broker_name, f"listening on port {self.port}")
        self.flow.start()
        if self.role.runs_services:
            await self.pre_online.run()
            self.start_services()
        if self.slave_sync is not None:
            self.slave_sync.start()
            self.acting.start()
            self.escape.start()
        elif self.cluster_copy.is_wanted and not self.role.is_slave:
            await self.cluster_copy.copy()
        if not self.role.is_isolated:
            self.registration.start()
        self.access.start()
        for seconds, job in (
            (config.flush_consumer_offset_interval / 1000, self.offset_persistence.persist),
            (10.0, self.clients.expire),
            (10.0, self._expire_locks),
            (10.0, self.filters.persist),
            (10.0, self.pop.orders.persist),
            (config.transaction_metric_flush_interval / 1000, self.transactions.counts.persist),
            (10.0, self._persist_events),
            (1.0, self.stats.sample),
            (config.lite_subscription_check_interval / 1000, self.pop.lite.expire_clients),
            (config.lite_ttl_check_interval / 1000, self.pop.lite.expiry.run),
        ):
            self._timers.append(asyncio.create_task(_every(seconds, job)))
        if config.enable_property_filter:
            # In a thread: on the event loop the first SQL92 expression would delay all responses.
            self._preparing = asyncio.create_task(in_thread(prepare))

    async def _start_replication(self) -> None:
        config, store = self.settings.broker, self.settings.store
        if self.slave is not None:
            self.slave.start()
        if self.role.is_slave:
            return
        try:
            await self.replication.start(config.bind_address, store.ha_listen_port)
        except ListenError as error:
            if self.settings.names_ha_port or store.broker_role is BrokerRole.SYNC_MASTER:
                assert self._server is not None
                await self._server.stop(0)
                await self.service.stop()
                raise
            log.warning("ha: %s; this broker goes on without slaves", error)

    async def _escaped(self, end: int) -> None:
        """Completes when what this slave delivers is stored by other masters, and its log is flushed."""
        assert self.bridge is not None, "not a slave that may act"
        await self.bridge.drained()
        await self.service.flushed(end)

    def _progress_end(self) -> int:
        """End of the log that consumer offsets follow from."""
        return self.pop.checkpoint_end if self.replica is None else self.store.log.end

    async def _copied(self, end: int) -> None:
        """Completes when the log is flushed and, on an elected master, copied."""
        await self.service.flushed(end)
        if isinstance(self.replication, AutoSwitchMaster):
            await self.replication.copied(end)

    def start_services(self) -> None:
        """Start the services that append messages. Not on a slave: its log has the bytes of its master's."""
        self.schedule.start()
        self.checks.start()
        if self.timer is not None:
            self.timer.start()
        self.pop.start()

    async def _start_metrics(self, metrics: MetricsService) -> None:
        try:
            await metrics.start()
        except BaseException:
            assert self._server is not None
            await self._server.stop(0)
            raise

    def _open(self) -> None:
        settings, disk, clock = self.settings, self.disk, self.clock
        config = settings.broker
        disk.refuse_links(settings.store.store_path_root_dir)
        self.writer = ConfigWriter(disk, settings.store.path("config"), self._run_blocking)
        self.access.load()
        self.journal = EventJournal(disk, settings.store.path("config"), clock, config.broker_event_journal_bytes)
        self.journal.load()
        self.events = EventWatch(self.journal)
        states = TableStates(disk, settings.store.path("config"))
        self.route_epoch = RouteEpoch()
        self.topics = TopicTable(
            self.writer, config, clock, timer_wheel=settings.store.timer_wheel_enable, route_epoch=self.route_epoch
        )
        self.topics.load()
        self.groups = GroupTable(self.writer, config, clock, self.route_epoch)
        self.groups.load()
        self.offsets = OffsetTable(self.writer, clock, config.consumer_offset_update_version_step, config)
        self.offsets.load()
        self.filters = ConsumerFilters(self.writer, config, clock)
        self.filters.load()
        self.metadata = Metadata(self.topics, self.groups, self.offsets, self.filters)
        # Overrides the file: tools show the actual length.
        settings.store.bit_map_length_consume_queue_ext = self.filters.bloom.bit_count
        self.store = MessageStore.open(
            settings.store,
            disk=disk,
            clock=clock,
            batch_topics=self.topics.batch_topics(),
            dispatches_later=self.replica is not None and self.replica.dispatches_later,
        )
        self.store.queues.removal_listeners.append(self.route_epoch.advance)
        self.role = role_of(config, settings.store, self.replica)
        if self.role.is_slave:
            self.store.appender.gate.close(REPLICA, self.role.refusal)
        if self.replica is not None:
            begin_term(self.replica, self.store, self.topics, self.groups)
        warn_of_role(settings.store, is_controlled=self.replica is not None)
        self.service = StoreService(self.store)
        recovered = recover_topics(self.topics, self.store, is_table_lost=states.is_lost(TOPICS))
        report_lost_tables(states, recovered, self.store)
        archived = self.service.retention.archived
        self.service.retention.held_from = lambda: self.replication.oldest_needed
        archived.committed, archived.is_own = self.offsets.query, self.topics.is_system_topic

    def _ha_gate(self) -> MasterGate:
        config, access = self.settings.store, self.access
        return MasterGate(
            ServerCertificates(self._tls) if config.ha_tls_enable and not self.role.is_slave else None,
            access.secret_of_super_user if config.ha_authentication_enabled else None,
        )

    def _run_blocking(self, work: Callable[[], T]) -> Awaitable[T]:
        return self.service.run_blocking(work)

    def _build(self) -> None:
        config, store, clock = self.settings.broker, self.store, self.clock
        self.clients = Clients(config, clock, self.filters, route_epoch=self.route_epoch)
        self.clients.on_event = self.journal.record
        self.topic_shares = shares_of_topics(config, self.topics)
        self.locks = QueueLocks(clock, config)
        self.stats = BrokerStats(
            clock,
            config.broker_cluster_name,
            detailed=config.enable_detail_stat,
            max_idle_minutes=config.max_stats_idle_time_in_minutes,
            is_system_topic=self.topics.is_system_topic,
            route_epoch=self.route_epoch,
        )
        self.stats.on_refused = self.events.refused
        has_users = self.access.table is not None and not store.config.ha_authentication_enabled
        admits = admission(store.config.ha_allowed_peers, has_users=has_users)
        self.replication = replication_of(
            config, store, self.service, self.journal, admits, self._ha_gate(), self.replica
        )
        self.flush_waiters = FlushWaiters(
            self.service, store.config.sync_flush_timeout, self.stats.waits, self.replication
        )
        self.runtime = BrokerRuntime(
            config,
            store,
            self.writer,
            self.service.flushed if self.replica is None else self._copied,
            self.flush_waiters,
            clock,
            self.random,
            self.stats,
            self.role,
        )
        targets = TargetQueues(self.topics)
        self.bridge: EscapeBridge | None = None
        deferring = self.runtime
        if self.role.is_slave and config.enable_slave_acting_master and config.enable_remote_escape:
            self.bridge = EscapeBridge(self.runtime, lambda command: self.registration.ask(command))  # noqa: PLW0108  # is built later
            deferring = dataclasses.replace(self.runtime, flushed=self._escaped, deliveries=self.bridge)
        self.schedule = ScheduleService(deferring, targets)
        self.schedule.load()
        self.transactions = Transactions(self.runtime, self.topics, self.offsets, self.schedule)
        self.transactions.load()
        self.checks = TransactionChecks(self.runtime, self.topics, self.offsets, self.clients, self.transactions)
        self.timer: TimerService | None = None
        if store.config.timer_wheel_enable:
            self.timer = TimerService(
                deferring, self.service.run_blocking, TimerCounts(self.writer, clock), targets
            )
            self.timer.load()
        self.flow = SendFlow(config, store, clock, self.stats.waits.event_loop)
        if self.role.is_isolated:
            self.flow.refusal = int(ResponseCode.SERVICE_NOT_AVAILABLE), self.role.refusal
        self.flow.shortage = lambda: self.replication.is_short
        self.replication.on_change = lambda: self.flow.update(self.flow.lag_ms)
        self.events.attach(self.metadata, self.flow, self.service)
        self.registration = Registration(
            config,
            self.topics,
            clock,
            ha_address=self.settings.ha_address,
            on_master=self.role.found_master,
        )
        self.registration.signer, self.registration.tls = self.access.signer, config.client_tls
        self.topics.on_change = self._topics_changed
        self.slave: ReplicationSlave | None = None
        follows = self.role.is_slave and not self.role.is_isolated
        if follows:
            self.slave = slave_of(
                self.role, self.service, self.journal, self.registration, self.access.signer, self.replica
            )
            if store.config.ha_tls_enable:
                self.slave.tls = config.client_tls
            if store.config.ha_authentication_enabled:
                self.slave.credentials = self.access.inner_credentials
        self.cold_pulls = ColdPulls(store.reader.cold, self._run_blocking)
        self.pulls = PullRequests(self.runtime, self.metadata, self.clients, self.cold_pulls)
        self.pop = PopService(self.runtime, self.metadata, self.clients, self.registration, self.timer)
        self.pop.load()
        self.offset_persistence = OffsetPersistence(self.runtime, self.offsets, self._progress_end)
        self.deferred = DeferredServices(self.schedule, self.timer, self.transactions)
        self.acting = ActingMaster(self.runtime, self.registration.ask)
        self.escape = EscapeServices(
            self.runtime, self.deferred, self.acting, self.bridge, self.settings.ha_address
        )
        self._build_pre_online()
        self.acting.on_change += [self.route_epoch.advance, self.pulls.held.answer_all]
        self.cluster_copy = ClusterCopy(self.runtime, self.metadata, self.pop.assignments)
        for caller in (self.pre_online, self.cluster_copy, self.bridge):
            if caller is not None:
                caller.signer, caller.tls = self.access.signer, config.client_tls
        self.slave_sync: SlaveSync | None = None
        if follows:
            self.slave_sync = slave_sync_of(
                self.runtime, self.metadata, self.deferred, self.pop.assignments, self.registration
            )
            self.slave_sync.signer, self.slave_sync.tls = self.access.signer, config.client_tls
            self.slave_sync.load()
            self.slave_sync.on_alive_change += [self.route_epoch.advance, self.pulls.held.answer_all]
        self.runtime_info = RuntimeInfo(
            self.settings, store, self.stats, self.schedule, self.timer, self.flow, clock
        )
        self.ha_status = HaStatusRequests(self.role, self.replication, self.slave)
        self.runtime_info.of_replicas = self.ha_status.figures
        if config.metrics_exporter is not MetricsExporterType.DISABLE:
            self.metrics = MetricsService(config, self._metrics_sources())

    def _build_pre_online(self) -> None:
        self.pre_online = PreOnline(self.runtime, self.metadata, self.deferred, self.settings.ha_address)
        self.pre_online.checkpoints = self.pop.checkpoints
        if self.bridge is not None and self.timer is not None:
            self.bridge.revive = EscapeRevive(self.runtime, self.metadata, self.pop, self.timer, self.bridge)
        if self.bridge is not None:
            self.bridge.transactions = EscapeTransactions(
                self.runtime, self.offsets, self.transactions, self.bridge
            )

    def _metrics_sources(self) -> MetricsSources:
        return MetricsSources(
            self.runtime,
            self.metadata,
            self.clients,
            self.deferred,
            self.pop,
            self.runtime_info,
            self.memory,
            connections=lambda: len(self.connections),
            held=lambda: {
                "pull": len(self.pulls.held),
                "priority_pull": len(self.pulls.priority),
                "pop": len(self.pop.pops.held),
                "notification": len(self.pop.notifications.held),
            },
            events=lambda: self.journal.counts,
            slave_lags=self.replication.lags,
        )

    async def _listen(self) -> None:
        config = self.settings.broker
        sends = self._send_requests()
        handlers = self.events.watched(self._handlers(sends))
        handlers = with_topic_quota(handlers, config, self.topics.configs, self.clock)
        environment = environment_of(self.settings, self.store)
        handlers = self.access.guarded(handlers, environment)
        if self.metrics is not None:
            handlers = self.metrics.requests.measured(handlers)
        self._fast_path = fast_path = self._build_fast_path(sends)
        log.debug("broker: requests served by the %s", "Python path" if fast_path is None else "native extension")
        vip = {code: handler for code, handler in handlers.items() if code not in MAIN_PORT_ONLY}
        self._server = RemotingServer(
            [
                Listener(handlers, config.listen_port, config.bind_address, self._verified(fast_path, environment)),
                Listener(
                    vip,
                    max(config.listen_port - VIP_DISTANCE, 0),
                    config.bind_address,
                    None if fast_path is None else self._verified(fast_path.without_pulls(), environment),
                ),
            ],
            limits=config.remoting_limits(config.server_channel_max_idle_time_seconds),
            tls=self._tls,
            trusted_proxies=config.trusted_proxies,
            budget=self.memory,
            on_open=_set_born_host,
            on_close=self._connection_closed,
            observer=None if self.metrics is None else self.metrics.requests.observe_response,
        )
        await self._server.start()

    def _build_fast_path(self, send_processor: SendRequests) -> FastPath | None:
        """The fast path in front of the request handlers; None without the native extension."""
        if not native.load().is_compiled or not self.access.allows_native:
            return None
        counts_sends = self.settings.broker.max_sends_per_second_of_topic > 0
        sends = None if counts_sends else send_processor.fast_path(self.route_epoch)
        acks = None if sends is None else self.pop.fast_path(self.route_epoch, self.topics, self.timer)
        pulls = PullFastPath(self.route_epoch, self.store, self.pulls, self.groups, self.offsets, self.stats)
        pops = None if sends is None else self.pop.pop_fast_path(self.route_epoch, self.topics, self.timer)
        offsets = OffsetFastPath(self.route_epoch, self.metadata)
        if self.metrics is not None:
            return MeasuredFastPath(sends, acks, pulls, pops, offsets, self.metrics.requests)
        return FastPath(sends, acks, pulls, pops, offsets)

    def _verified(self, fast_path: FastPath | None, environment: Environment) -> FrameInterceptor | None:
        """The fast path, behind the verification of signatures where there are users."""
        table = self.access.table
        if fast_path is None or not isinstance(table, UserTable):
            return fast_path
        return SignedFastPath(fast_path, SignedRequests(self.access.settings, table, environment))

    def _send_requests(self) -> SendRequests:
        address = host_bytes(self.settings.broker.broker_address)
        unique_ids = UniqueIdFactory(address[:-4], os.getpid(), id(self), self.clock.now_ms)
        return SendRequests(
            self.runtime, self.metadata, self.deferred, self.locks, self.flow, unique_ids, self.topic_shares
        )

    def _handlers(self, sends: SendRequests) -> dict[int, Handler]:
        config, store, clock = self.settings.broker, self.store, self.clock
        topics, groups, offsets, clients = self.topics, self.groups, self.offsets, self.clients
        topic_requests = TopicRequests(
            self.runtime, self.metadata, self.service, clients, self.registration.settled, self.timer
        )
        if self.role.runs_services:
            self.pop.lite.expiry.delete = topic_requests.delete_light_queues
        parts = (
            sends,
            SendBackRequests(self.runtime, self.metadata, self.schedule),
            RecallRequests(self.runtime, topics, self.timer),
            TimerRequests(self.timer),
            ReplyRequests(self.runtime, sends, clients, self.flow),
            self.pulls,
            OffsetRequests(self.runtime, self.metadata, clients),
            OffsetResets(self.runtime, self.metadata, clients, self.pulls.held.end_of_group),
            ConsumeStatsRequests(self.runtime, self.metadata, clients),
            QueryRequests(store, clients, self.filters),
            ClientRequests(config, clock, clients, topics, groups, self.topic_shares),
            ConnectionRequests(clients),
            LockRequests(self.locks),
            RelayRequests(config, clients, topics, groups, store),
            topic_requests,
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
            self.acting,
            self.escape,
            EventRequests(self.journal),
            self.ha_status,
            self.runtime_info,
            self.schedule,
            self.transactions,
            self.pop,
            *(() if self.replica is None else (self.replica,)),
        )
        handlers: dict[int, Handler] = {}
        for part in parts:
            twice = handlers.keys() & part.handlers.keys()
            assert not twice, f"two processors for {twice}"
            handlers.update(part.handlers)
        return guarded(handlers, self.role, config.broker_ip1)

    # Changes at run time

    def _topics_changed(self, names: Sequence[str]) -> None:
        for name in names:
            if self.topics.configs[name].attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
                self.store.queues.batch_topics.add(name)
        self.events.topics_changed(names)
        self.registration.topics_changed(names)

    def _settings_changed(self) -> None:
        self.journal.record(EventKind.SETTINGS_CHANGE)
        self.route_epoch.advance()
        if self._fast_path is not None:
            self._fast_path.rebuild()

    def _permission_changed(self) -> None:
        self.topics.bump()
        self.registration.register_soon()

    def _persist_events(self) -> None:
        run_in_background(self.journal.persist(self.service.run_blocking))

    def _expire_locks(self) -> None:
        if self.locks.expire():
            asyncio.get_running_loop().call_soon(self._expire_locks)

    def _connection_closed(self, connection: Connection, _error: Exception | None) -> None:
        self.clients.closed(connection)
        if self.metrics is not None:
            self.metrics.requests.forget(connection)

    # Stopping

    async def stop(self, *, is_handover: bool = False) -> None:
        """Refuse new messages, complete pending responses, close the store; within seconds. Raises StoreError.

        ``is_handover``: this broker starts again at once in another role, which clients wait for.
        """
        if self._server is None or self._is_stopping:
            return
        self._is_stopping = True
        if isinstance(self.replication, AutoSwitchMaster):
            self.replication.give_up()
        config = self.settings.broker
        if self.metrics is not None:
            await self.metrics.stop()
        if not self.role.is_slave and not is_handover:
            await self.registration.wipe_write_permission()
        self.pulls.held.release()
        await self.cold_pulls.stop()
        self.pulls.priority.release()
        self.pop.release()
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
        await self._server.stop(0 if is_handover else DRAIN_SECONDS)
        await self.registration.stop(leaves=not is_handover)
        await self.acting.stop()
        await self.escape.stop()
        if self.slave_sync is not None:
            await self.slave_sync.stop()
        await self.schedule.stop()
        if self.role.runs_services:
            await self.checks.stop()
        await self.offset_persistence.stop()
        await self.pop.stop()
        if self.timer is not None:
            await self.timer.stop()
        self.flow.stop()
        if self.slave is not None:
            await self.slave.stop()
        await self.replication.stop()
        await self.access.stop()
        try:
            self.topics.persist()
            self.groups.persist()
            if not self.replication.may_lose_end:
                self.offsets.persist()
            self.filters.persist()
            self.transactions.counts.persist()
            self.journal.record(EventKind.BROKER_STOP, config.broker_name)
            await self.journal.persist(self.service.run_blocking)
            await self.writer.stop()
        except StoreError as error:
            log.error("broker: failed to persist the tables: %s", error)
        finally:
            await self.service.stop()


async def _every(seconds: float, job: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            job()
        except Exception:
            # A failed periodic task must not stop the schedule; it is retried at the next interval.
            log.exception("broker: periodic task %s failed, will retry in %g s", job.__qualname__, seconds)


def _set_born_host(connection: Connection) -> None:
    """Set the born host of the messages of a connection."""
    try:
        connection.state = host_bytes(connection.remote_address)
    except ProtocolError:
        connection.state = UNKNOWN_HOST


def _free_pair(host: str) -> int:
    """A free port whose VIP port and HA port are free too."""
    for _ in range(100):
        with contextlib.ExitStack() as sockets:
            try:
                main = sockets.enter_context(socket.create_server((host, 0)))
                port: int = main.getsockname()[1]
                sockets.enter_context(socket.create_server((host, port - VIP_DISTANCE)))
                sockets.enter_context(socket.create_server((host, port + HA_DISTANCE)))
            except OSError:
                continue
            return port
    raise ListenError(f"no port is free on {host} together with the VIP and HA ports beside it")
