"""Composition root of the name server: tables, processors and the listening socket, with start and stop."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from orbitmq.auth.access import AccessControl, Place
from orbitmq.auth.requirements import Environment
from orbitmq.nameserver.broker_requests import BrokerRequests
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.config_requests import ConfigRequests
from orbitmq.nameserver.kv_config import KvConfig
from orbitmq.nameserver.notifications import Notifications
from orbitmq.nameserver.route_answers import RouteAnswers
from orbitmq.nameserver.route_table import RouteTable
from orbitmq.nameserver.topic_requests import TopicRequests
from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.loop_slices import in_slices
from orbitmq.platform.memory_budget import budget_of
from orbitmq.platform.threads import in_thread
from orbitmq.remoting import Connection, Listener, RemotingServer
from orbitmq.remoting.processor import run_in_background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orbitmq.nameserver.brokers import Broker, MinBrokerIdChange
    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.memory_budget import MemoryBudget
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.remoting import Handler, ServerTls

log = logging.getLogger("orbitmq.nameserver")

REMOVED_AT_ONCE = 8
"""Removal steps that run at once; each takes up to some milliseconds."""


class NameServer:
    """A name server. Sockets and timers come from the running event loop; disk and clock are arguments."""

    def __init__(
        self,
        config: NameServerConfig | None = None,
        *,
        disk: Disk | None = None,
        now_ms: Callable[[], int] | None = None,
        limits: NameServerLimits | None = None,
        tls: ServerTls | None = None,
        run_blocking: RunBlocking = in_thread,
        memory: MemoryBudget | None = None,
        access: AccessControl | None = None,
    ) -> None:
        """``memory`` is a budget shared with other servers, instead of the one of the settings.

        ``access`` is shared with a broker of this process, which then knows the same users.

        ``now_ms`` is the clock of heartbeat timeouts; by default the event loop's, which is monotonic.
        """
        # Loopback unless a configuration is given.
        self.config = config = config or NameServerConfig(bind_address="127.0.0.1")
        self._now_ms = now_ms or _loop_ms
        self._started_ms = 0
        disk = disk or LocalDisk()
        limits = limits or config.limits
        self.table = RouteTable(limits, self._changed)
        self._kv_config = KvConfig(disk, config.kv_config_path, limits, run_blocking)
        self._answers = RouteAnswers(self.table, self._kv_config, config, self._uptime_ms)
        self._notifications: Notifications | None = None
        brokers = BrokerRequests(self.table, self._kv_config, config, limits, self._now_ms, self._notify)
        place = Place(
            disk, os.path.join(os.path.dirname(config.kv_config_path), "config"), run_blocking, SYSTEM_CLOCK.now_ms
        )
        self.access = access or AccessControl(config, place, home=config.rocketmq_home)
        handlers = {
            **self._answers.handlers,
            **brokers.handlers,
            **TopicRequests(self.table, config, limits).handlers,
            **ConfigRequests(self._kv_config, config, disk, self._changed, run_blocking).handlers,
        }
        # A name server belongs to no cluster: a rule for all of them is meant for it.
        self.handlers: Mapping[int, Handler] = self.access.guarded(handlers, Environment("", lambda _: None))
        self.memory = memory or budget_of(config.remoting_memory_budget)
        self._server = RemotingServer(
            [Listener(self.handlers, config.listen_port, config.bind_address)],
            limits=config.remoting_limits(config.server_channel_max_idle_time_seconds),
            tls=tls or config.server_tls,
            trusted_proxies=config.trusted_proxies,
            budget=self.memory,
            on_close=self.connection_closed,
        )
        self._scan_timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port it listens on, after ``start``."""
        return self._server.ports[0]

    async def start(self) -> None:
        """Load the files and listen. Raises StoreError, RemotingError."""
        if self.config.cluster_test:
            log.warning("settings: clusterTest=true has no effect")
        self._kv_config.load()
        self.access.load()
        self._started_ms = self._now_ms()
        self._notifications = Notifications(self.access.signer, self.config.client_tls)
        try:
            await self._server.start()
        except BaseException:
            await self._notifications.close()
            raise
        self.access.start()
        self._scan_later()

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening, send deferred responses, and close all connections."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        notifications, self._notifications = self._notifications, None
        if notifications is not None:
            await notifications.close()
        await self._server.stop(grace)
        await self.access.stop()
        await self._kv_config.stop()

    def connection_closed(self, connection: Connection, _: Exception | None = None) -> None:
        """Remove the brokers of a closed connection from all routes."""
        self._forget(self.table.connected_by(connection), "connection closed")

    def scan(self) -> None:
        """Remove brokers past their heartbeat timeout, and close their connections."""
        self._forget(self.table.silent(self._now_ms()), "heartbeat timeout", closes=True)

    def _forget(self, brokers: list[Broker], why: str, *, closes: bool = False) -> None:
        """Remove brokers: a few at once, many in time slices between requests."""
        steps = self.table.removing(brokers)
        for number, step in enumerate(steps, 1):
            self._removed(step, why, closes=closes)
            if number == REMOVED_AT_ONCE:
                run_in_background(self._forget_the_rest(steps, why, closes=closes))
                return

    async def _forget_the_rest(
        self, steps: Iterator[tuple[Broker, MinBrokerIdChange | None] | None], why: str, *, closes: bool
    ) -> None:
        async for step in in_slices(steps):
            self._removed(step, why, closes=closes)

    def _scan_later(self) -> None:
        # Read each time, because it can change at run time.
        seconds = self.config.scan_not_active_broker_interval / 1000
        self._scan_timer = asyncio.get_running_loop().call_later(seconds, self._scan_and_again)

    def _scan_and_again(self) -> None:
        self._scan_later()
        self.scan()

    def _removed(self, step: tuple[Broker, MinBrokerIdChange | None] | None, why: str, *, closes: bool) -> None:
        if step is None:
            return
        broker, change = step
        log.info("broker registration: %s (%s, id %d) removed: %s", broker.name, broker.address, broker.id, why)
        if change is not None:
            self._notify(change)
        if closes and isinstance(broker.connection, Connection) and not self.table.is_used(broker.connection):
            broker.connection.close()

    def _notify(self, change: MinBrokerIdChange) -> None:
        if self.config.notify_min_broker_id_changed and self._notifications is not None:
            self._notifications.send(change)

    def _changed(self, topic: str | None) -> None:
        self._answers.invalidate(topic)

    def _uptime_ms(self) -> int:
        return self._now_ms() - self._started_ms


def _loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
