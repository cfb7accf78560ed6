"""Elections that the controller triggers: for masters whose connection closed or whose heartbeats stopped."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.controller.machine.operations import ANY_BROKER, ElectionRequest
from orbitmq.controller.storage.interface import CommitError, NotLeaderError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.remoting import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.controller.config import ControllerConfig
    from orbitmq.controller.liveness import Member
    from orbitmq.controller.notifications import Notifications
    from orbitmq.controller.service import ControllerService, Outcome

log = logging.getLogger("orbitmq.controller")

RETRY_SECONDS = 0.2


class Elections:
    """Scans between ``start`` and ``stop``, and elects in the background."""

    def __init__(self, service: ControllerService, config: ControllerConfig, now_ms: Callable[[], int]) -> None:
        self._service = service
        self._config = config
        self._now_ms = now_ms
        self._notifications: Notifications | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self.held = 0
        """Elections that began a new epoch since the start."""

    def start(self, notifications: Notifications) -> None:
        self._notifications = notifications
        self._schedule("liveness", self._scan_again)
        self._schedule("masters", self._check_again)

    async def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in tuple(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        self._notifications = None

    def announce(self, outcome: Outcome) -> None:
        """Notify the brokers of a group of an election that has changed something."""
        group = outcome.group
        if outcome.decision.event is None or group is None:
            return
        self.held += 1
        if group.master is None:
            # As in RocketMQ: the loss of a master alone is left to the polls of the brokers.
            return
        log.info(
            "election: broker group %s: master %d (%s), epoch %d",
            group.name,
            group.master,
            group.master_address,
            group.master_epoch,
        )
        if self._notifications is not None and self._config.notify_broker_role_changed:
            self._notifications.role_changed(group, outcome.replicas)

    def disconnected(self, connection: Connection) -> None:
        """Brokers whose connection closed are dead at once; unless this controller has closed it, to stop."""
        if not self._timers:
            return
        for member in self._service.liveness.disconnected(connection):
            self._lost(member, "connection closed")

    def scan(self) -> None:
        """Find brokers past their heartbeat timeout, and close their connections."""
        expired = self._service.liveness.scan(self._now_ms(), self._scan_interval_ms)
        for member, heartbeat in expired:
            self._lost(member, "heartbeat timeout")
            if isinstance(heartbeat.connection, Connection):
                heartbeat.connection.close()

    def check_masters(self) -> None:
        """Elect where the master is dead, or where a candidate has come back to a group without a master."""
        try:
            groups = self._service.groups()
        except NotLeaderError:
            return
        for group in groups:
            if self._service.needs_election(group):
                self._elect(group.name)

    # Timers

    @property
    def _scan_interval_ms(self) -> int:
        return self._config.scan_not_active_broker_interval

    def _scan_again(self) -> None:
        self._schedule("liveness", self._scan_again)
        self.scan()

    def _check_again(self) -> None:
        self._schedule("masters", self._check_again)
        self.check_masters()

    def _schedule(self, name: str, work: Callable[[], None]) -> None:
        # Read each time, because it can change at run time.
        millis = self._scan_interval_ms if name == "liveness" else self._config.scan_inactive_master_interval
        self._timers[name] = asyncio.get_running_loop().call_later(millis / 1000, work)

    # Elections

    def _lost(self, member: Member, why: str) -> None:
        log.warning("broker %s (id %d, cluster %s) is dead: %s", member.name, member.id, member.cluster, why)
        try:
            group = self._service.group(member.name)
        except NotLeaderError:
            return
        if group is not None and group.cluster == member.cluster and group.master == member.id:
            self._elect(member.name)

    def _elect(self, name: str) -> None:
        if name in self._running or not self._timers:
            return
        task = asyncio.get_running_loop().create_task(self._elected(name))
        self._running[name] = task
        task.add_done_callback(lambda _: self._running.pop(name, None))

    async def _elected(self, name: str) -> None:
        attempts = max(1, self._config.elect_master_max_retry_count)
        for attempt in range(1, attempts + 1):
            try:
                outcome = await self._service.elect(ElectionRequest(name, ANY_BROKER))
            except NotLeaderError:
                return
            except CommitError as error:
                log.error("election: broker group %s: attempt %d of %d failed: %s", name, attempt, attempts, error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if outcome.decision.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE:
                log.error("election: broker group %s has no master: %s", name, outcome.decision.remark)
            self.announce(outcome)
            return
