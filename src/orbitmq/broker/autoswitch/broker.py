"""ControlledBroker (RocketMQ: ReplicasManager): a broker whose role a controller decides.

A change of the role opens the store again in the same process: recovery makes log, queues and index agree, whatever
was cut off, and no cache of the old role survives. Clients connect again. A change that fails is repeated until it
succeeds or another term begins.

What the controller says counts only as the answer to a request: the answer that names this broker as the master
begins its lease at the moment when the request was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.autoswitch.controllers import UNKNOWN_MEMBER, ControllerClient, ControllerError
from orbitmq.broker.autoswitch.identity import Identity, IdentityFiles
from orbitmq.broker.autoswitch.lease import Lease, boot_time
from orbitmq.broker.autoswitch.master import AutoSwitchMaster
from orbitmq.broker.autoswitch.requests import ReplicaRequests
from orbitmq.broker.autoswitch.sync_set import SyncSetKeeper
from orbitmq.broker.autoswitch.term import Replica, Term
from orbitmq.broker.broker import Broker
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.broker_events import EventKind
from orbitmq.store import LocalDisk, StoreError, SystemClock
from orbitmq.store.replication.epochs import EpochFile
from orbitmq.store.replication.sync_state import SyncState
from orbitmq.store.replication.truncation import truncate

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine
    from typing import Any

    from orbitmq.auth.access import AccessControl
    from orbitmq.broker.autoswitch.controllers import CallObserver
    from orbitmq.broker.config.loader import BrokerSettings
    from orbitmq.broker.metrics.service import MetricsService
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.memory_budget import MemoryBudget
    from orbitmq.protocol.command.fields import FieldValue
    from orbitmq.remoting import ServerTls
    from orbitmq.store import Clock
    from orbitmq.store.replication.epochs import Epochs

log = logging.getLogger("orbitmq.broker")

RETRY_SECONDS = 5.0
"""Longest pause after a failure, RocketMQ's only one."""

FIRST_RETRY = 0.5

POLLS_PER_LEASE = 4

LONELY_POLL_SECONDS = 1.0
"""Interval at which a slave without a connection to its master asks for the current one."""

LEASE_CHECK_SECONDS = 0.1

FENCED = "fenced"
"""Name of the store gate's reason while the lease is not valid."""


class ControlledBroker:
    """A broker in controller mode. ``broker`` is opened again for each role."""

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
        lease_clock: Callable[[], float] = boot_time,
    ) -> None:
        config = settings.broker
        assert config.enable_controller_mode, "not in controller mode"
        self.settings = settings
        self._config = config
        self.disk = disk or LocalDisk()
        self.clock = clock or SystemClock()
        self._build = functools.partial(
            Broker,
            settings,
            disk=self.disk,
            clock=self.clock,
            tls=tls,
            memory=memory,
            random_source=random_source,
            access=access,
        )
        store = settings.store
        self._epochs = EpochFile(self.disk, store.store_path_epoch_file or store.path("epochFileCheckpoint"))
        self._identity_files = IdentityFiles(
            self.disk,
            store.store_path_broker_identity or store.path("brokerIdentity"),
            config.broker_cluster_name,
            config.broker_name,
        )
        self._identity: Identity | None = None
        self._is_registered = False
        self._lease = Lease(config, lease_clock)
        self._requests = ReplicaRequests(config, lambda: self._epochs.epochs, self._log_end, self._wake_up)
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._trouble = ""
        self._cut: int | None = None
        """End at which the log has to be cut off before it can be copied."""
        self._opened = Term(0)
        """The term that the broker was opened for."""
        self._wanted = Term(0)
        """The newest term of the controller."""
        self.observer: CallObserver | None = None
        """Sees the requests to the controllers and their answers; to be set before the start."""
        self.broker: Broker | None = None
        self._closing: asyncio.Task[None] | None = None
        """The end of the previous one."""

    # Starting and stopping

    async def start(self) -> None:
        """Open the store, listen, and begin to look for the role. Raises what ``Broker.start`` raises."""
        self._identity = self._identity_files.load()
        await self._open(Term(0 if self._identity is None else self._identity.broker_id))
        assert self.broker is not None
        self.controllers = ControllerClient(
            self._config, self.clock, self._config.client_tls, self.broker.access.signer
        )
        self.controllers.observer = self.observer
        self._keeper = SyncSetKeeper(self._config, self.controllers, self._current_master, self._wake_up)
        log.info("controller: isolated until the controllers %s name a master", self._config.controller_addr)
        jobs: tuple[Coroutine[Any, Any, None], ...] = (
            self._run(),
            self._beat(),
            self._follow_leader(),
            self._watch_lease(),
            self._keeper.run(),
        )
        self._tasks = [asyncio.create_task(job) for job in jobs]

    async def stop(self) -> None:
        """Stop the broker; the controllers elect another master when the connection to them ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._closing is not None:
            await asyncio.gather(self._closing, return_exceptions=True)
        if self.broker is not None:
            await self.broker.stop()
        await self.controllers.close()

    def hold(self, *, is_held: bool) -> None:
        """Read no requests and tell controllers nothing, or go on: a broker that hangs, for tests."""
        (self._goes_on.clear if is_held else self._goes_on.set)()
        if self.broker is not None:
            self.broker.hold(is_held=is_held)

    @property
    def port(self) -> int:
        return self._config.listen_port

    @property
    def metrics(self) -> MetricsService | None:
        return None if self.broker is None else self.broker.metrics

    @property
    def term(self) -> Term:
        """The role in which this broker works."""
        return self._opened

    @property
    def lease_is_valid(self) -> bool:
        """True while this broker, as the master, may acknowledge messages."""
        return self._lease.is_valid

    @property
    def epochs(self) -> Epochs:
        """Who wrote which part of the log."""
        return self._epochs.epochs

    def _log_end(self) -> int:
        return 0 if self.broker is None else self.broker.store.log.end

    def _wake_up(self) -> None:
        self._wake.set()

    def _current_master(self) -> tuple[Term, AutoSwitchMaster] | None:
        replication = None if self.broker is None else self.broker.replication
        return (self._opened, replication) if isinstance(replication, AutoSwitchMaster) else None

    # Opening the broker for a role

    async def _open(self, term: Term) -> None:
        settings = self.settings
        settings.broker.broker_id, settings.store.broker_role = term.broker_id, term.role
        sync = None
        if term.is_master:
            sync = SyncState(settings.store, term.own_id, term.members, term.set_epoch)
        replica = Replica(
            term, self._epochs, self._lease, sync, self._keep_set, self._truncate_soon, self._requests.handlers
        )
        broker = self._build(replica=replica)
        try:
            await broker.start()
        except BaseException:
            store = getattr(broker, "store", None)
            if store is not None and store.is_open:
                store.abandon()  # or the next attempt would find it locked
            raise
        self.broker, self._opened = broker, term

    def _keep_set(self) -> None:
        self._keeper.check_soon()

    def _truncate_soon(self, end: int) -> None:
        self._cut = end
        self._wake.set()

    async def _close(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            self._closing = asyncio.create_task(broker.stop(is_handover=True))
            await asyncio.shield(self._closing)

    async def _change(self, term: Term) -> None:
        """Open the broker for another role. Raises what the store and the sockets raise; may be repeated."""
        begun = self._lease.now()
        cut, self._cut = self._cut, None
        await self._close()
        if cut is not None:
            await self._truncate(cut)
        await self._open(term)
        what = "master" if term.is_master else "slave"
        took = (self._lease.now() - begun) * 1000
        log.info("controller: this broker (id %d) is %s now, %s, after %d ms", term.own_id, what, term, took)
        assert self.broker is not None
        self.broker.journal.record(EventKind.ROLE_CHANGE, self._config.broker_name, f"{what}: {term}")

    async def _truncate(self, end: int) -> None:
        found = self._epochs.epochs.at(end - 1) if end > 0 else None
        known = 0 if found is None else found[0].start
        log.warning("ha: cutting the log off at %d: the master does not have what follows", end)
        store = self.settings.store
        await in_thread(functools.partial(truncate, store, self.disk, self.clock, end, known))
        self._epochs.cut(end)

    # The controllers

    async def _run(self) -> None:
        pause = FIRST_RETRY
        while True:
            self._wake.clear()
            await self._goes_on.wait()
            try:
                await self._step()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # Any error: a broker that ceases to look for its role would never serve again.
                self._report(error)
                # Not longer: a controller that was silent gets no heartbeats before it has answered.
                longest = min(RETRY_SECONDS, self._lease.seconds / POLLS_PER_LEASE)
                seconds, pause = min(pause, longest), min(pause * 2, RETRY_SECONDS)
            else:
                self._recovered()
                pause, seconds = FIRST_RETRY, self._poll_seconds
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)

    @property
    def _poll_seconds(self) -> float:
        seconds = self._config.sync_broker_metadata_period / 1000
        if self._opened.is_master:
            return min(seconds, self._lease.seconds / POLLS_PER_LEASE)
        slave = None if self.broker is None else self.broker.slave
        is_copying = slave is not None and slave.connection is not None
        # The notice of an election may have been lost, or refused (adminNetworks).
        return seconds if is_copying else min(seconds, LONELY_POLL_SECONDS)

    def _report(self, error: Exception) -> None:
        trouble = str(error) or type(error).__name__
        if trouble != self._trouble:
            self._trouble = trouble
            is_expected = isinstance(error, ControllerError)
            log.warning("controller: will retry: %s", trouble, exc_info=None if is_expected else error)

    def _recovered(self) -> None:
        if self._trouble:
            self._trouble = ""
            log.info("controller: answers again")

    async def _step(self) -> None:
        """Learn the current term from the controller, and take the role that it gives to this broker."""
        if self._cut is not None or self.broker is None:
            await self._change(self._wanted)
        sent = self._lease.now()
        term = await self._ask()
        if term.is_known:
            await self._adopt(term, sent)

    async def _ask(self) -> Term:
        own_id = await self._own_id()
        try:
            if not self._is_registered:
                term = await self.controllers.register(own_id)
                self._is_registered = True
                log.info("controller: registered as broker %d, %s", own_id, term)
                # Without it the controller takes this broker for dead: no election, no place in the set.
                await self.controllers.heartbeat(self._heartbeat)
            else:
                if self._opened.is_master:
                    # The controller counts from the last heartbeat. Without one that is as new as the lease, it
                    # could elect another master while the lease of this one still holds.
                    await self.controllers.heartbeat_to_leader(self._heartbeat)
                term = await self.controllers.replica_info(own_id)
        except ControllerError as error:
            if error.code in UNKNOWN_MEMBER:
                if not self._is_registered:
                    raise ControllerError(
                        f"{error}. The controller does not know the id {own_id} of this broker: its metadata was "
                        "removed, or it lost its state. Remove the file brokerIdentity to join with a new id",
                        error.code,
                    ) from error
                self._is_registered = False
            raise
        if term.is_known:
            return term
        # Elections compare the heartbeats.
        await self.controllers.heartbeat(self._heartbeat)
        return await self.controllers.elect(own_id)

    async def _own_id(self) -> int:
        """The id of this broker at the controller, which it gets once."""
        identity = self._identity
        if identity is None:
            next_id = await self.controllers.next_id()
            check_code = f"{self._config.broker_address};{self.clock.now_ms()}"
            identity = self._identity = self._identity_files.apply(next_id, check_code)
        if identity.check_code:
            try:
                await self.controllers.apply_id(identity.broker_id, identity.check_code)
            except ControllerError as error:
                if error.is_final:
                    self._identity_files.drop()
                    self._identity = None
                raise
            identity = self._identity = self._identity_files.confirm(identity)
            log.info("controller: the id of this broker is %d", identity.broker_id)
        return identity.broker_id

    async def _adopt(self, term: Term, sent: float) -> None:
        known = self._wanted
        if term.epoch < known.epoch:
            raise ControllerError(
                f"the controller is at epoch {term.epoch}, this broker was at {known.epoch}: an old answer, "
                "or the controllers lost their state"
            )
        is_same = (term.master_id, term.master_address) == (known.master_id, known.master_address)
        self._wanted = term
        if not is_same or self._opened.own_id != term.own_id or not self._opened.is_known:
            log.info("controller: %s", term)
            if term.is_master:
                self._lease.renew(sent)
            await self._change(term)
        elif term.is_master:
            self._lease.renew(sent)
            self._continue(term)
        self._opened = dataclasses.replace(term)

    def _continue(self, term: Term) -> None:
        """Go on as the master, perhaps of a new epoch, without a master in between."""
        current = self._current_master()
        assert current is not None, "not a master"
        assert self.broker is not None, "closed"
        before, master = current
        if term.epoch > before.epoch:
            log.info("controller: still the master, epoch %d", term.epoch)
            self._epochs.append(term.epoch, self.broker.store.log.end)
            self.broker.topics.begin_epoch(term.epoch)
            self.broker.groups.begin_epoch(term.epoch)
            self.broker.registration.register_soon()
        members, epoch = master.sync.members, master.sync.epoch
        if master.sync.confirm(term.members, term.set_epoch) and (members, epoch) != (term.members, term.set_epoch):
            master.set_changed()

    async def _follow_leader(self) -> None:
        while True:
            seconds = self._config.sync_controller_metadata_period / 1000
            if self.controllers.silent:
                seconds = min(seconds, self._lease.seconds / POLLS_PER_LEASE)
            await asyncio.sleep(seconds)
            await self.controllers.find_leader()
            if self.broker is not None:
                try:
                    self._epochs.forget(self.broker.store.log.start)
                except StoreError as error:
                    log.warning("ha: epochs of removed log files stay: %s", error)

    # Heartbeats and the lease

    def _heartbeat(self) -> dict[str, FieldValue]:
        config = self._config
        store = None if self.broker is None else self.broker.store
        return {
            "clusterName": config.broker_cluster_name,
            "brokerAddr": config.broker_address,
            "brokerName": config.broker_name,
            "brokerId": self._opened.own_id if self._identity is None else self._identity.broker_id,
            "epoch": self._epochs.epochs.last_epoch,
            "maxOffset": 0 if store is None else store.log.end,
            "confirmOffset": 0 if store is None else store.checkpoint.confirm_phy_offset,
            "heartbeatTimeoutMills": config.controller_heart_beat_timeout_mills,
            "electionPriority": config.broker_election_priority,
        }

    async def _beat(self) -> None:
        while True:
            await self._goes_on.wait()
            # A broker that is being opened has no log to compare: controllers keep its last heartbeat.
            if self._is_registered and self.broker is not None:
                await self.controllers.heartbeat(self._heartbeat)
            await asyncio.sleep(self._config.broker_heartbeat_interval / 1000)

    async def _watch_lease(self) -> None:
        is_fenced = False
        while True:
            await asyncio.sleep(LEASE_CHECK_SECONDS)
            broker = self.broker
            if broker is None or not self._opened.is_master:
                is_fenced = False
                continue
            if self._lease.is_valid is not is_fenced:
                continue
            is_fenced = not is_fenced
            gate, age = broker.store.appender.gate, self._lease.age
            if is_fenced:
                gate.close(FENCED, f"no controller confirmed this master for {age:.1f} s, another may be elected")
                log.error("controller: no answer for %.1f s, this master refuses messages until there is one", age)
                self._wake.set()
            else:
                gate.open(FENCED)
                log.info("controller: this master is confirmed again")
            broker.flow.update(broker.flow.lag_ms)
