"""The name server: the tables, the processors and the listening socket, started and stopped together."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.nameserver.broker_requests import BrokerRequests
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.config_requests import ConfigRequests
from orbitmq.nameserver.kv_config import KvConfig
from orbitmq.nameserver.limits import NameServerLimits
from orbitmq.nameserver.notifications import Notifications
from orbitmq.nameserver.route_answers import RouteAnswers
from orbitmq.nameserver.route_table import RouteTable
from orbitmq.nameserver.topic_requests import TopicRequests
from orbitmq.remoting import Connection, Limits, Listener, RemotingServer
from orbitmq.store.disk import LocalDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.nameserver.brokers import Broker, MinBrokerIdChange
    from orbitmq.remoting import Handler, ServerTls
    from orbitmq.store.disk import Disk

log = logging.getLogger("orbitmq.nameserver")


class NameServer:
    """A name server. Sockets and timers are the running loop's; disk and clock are handed in."""

    def __init__(
        self,
        config: NameServerConfig | None = None,
        *,
        disk: Disk | None = None,
        now_ms: Callable[[], int] | None = None,
        limits: NameServerLimits | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """``now_ms`` tells how long brokers are silent. Without it that is the loop's time, which no one sets."""
        # Loopback unless somebody asked for more; a settings file of RocketMQ asks for every interface.
        self.config = config = config or NameServerConfig(bind_address="127.0.0.1")
        self._now_ms = now_ms or _loop_ms
        self._started_ms = 0
        disk = disk or LocalDisk()
        limits = limits or NameServerLimits()
        self.table = RouteTable(limits, self._changed)
        self._kv_config = KvConfig(disk, config.kv_config_path, limits)
        self._answers = RouteAnswers(self.table, self._kv_config, config, self._uptime_ms)
        self._notifications: Notifications | None = None
        brokers = BrokerRequests(self.table, self._kv_config, config, limits, self._now_ms, self._notify)
        self.handlers: Mapping[int, Handler] = {
            **self._answers.handlers,
            **brokers.handlers,
            **TopicRequests(self.table, config, limits).handlers,
            **ConfigRequests(self._kv_config, config, disk, self._changed).handlers,
        }
        self._server = RemotingServer(
            [Listener(self.handlers, config.listen_port, config.bind_address)],
            limits=Limits(idle_seconds=config.server_channel_max_idle_time_seconds),
            tls=tls,
            on_close=self.connection_closed,
        )
        self._scan_timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        return self._server.ports[0]

    async def start(self) -> None:
        """Read what is on disk and listen. Raises StoreError, RemotingError."""
        for key, is_on in (
            ("clusterTest", self.config.cluster_test),
            ("enableControllerInNamesrv", self.config.enable_controller_in_namesrv),
        ):
            if is_on:
                log.warning("%s=true has no effect here", key)
        self._kv_config.load()
        self._started_ms = self._now_ms()
        self._notifications = Notifications()
        try:
            await self._server.start()
        except BaseException:
            await self._notifications.close()
            raise
        self._scan_later()

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening, send the answers that are owed, and forget everything that is not on disk."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        notifications, self._notifications = self._notifications, None
        if notifications is not None:
            await notifications.close()
        await self._server.stop(grace)

    def connection_closed(self, connection: Connection, _: Exception | None = None) -> None:
        """Brokers whose connection is gone are gone: nobody is sent to them any more."""
        gone, changes = self.table.unregister_connection(connection)
        self._tell(gone, changes, "its connection is closed")

    def scan(self) -> None:
        """Forget brokers that were silent for too long, and close what they were connected by."""
        gone, changes = self.table.expire(self._now_ms())
        self._tell(gone, changes, "nothing was heard of it in time")
        for broker in gone:
            if isinstance(broker.connection, Connection) and not self.table.is_used(broker.connection):
                broker.connection.close()

    def _scan_later(self) -> None:
        # The interval is read anew each time, for it can be changed at runtime.
        seconds = self.config.scan_not_active_broker_interval / 1000
        self._scan_timer = asyncio.get_running_loop().call_later(seconds, self._scan_and_again)

    def _scan_and_again(self) -> None:
        self._scan_later()
        self.scan()

    def _tell(self, gone: list[Broker], changes: list[MinBrokerIdChange], why: str) -> None:
        for broker in gone:
            log.info("broker %s (%s, id %d) is gone: %s", broker.name, broker.address, broker.id, why)
        for change in changes:
            self._notify(change)

    def _notify(self, change: MinBrokerIdChange) -> None:
        if self.config.notify_min_broker_id_changed and self._notifications is not None:
            self._notifications.send(change)

    def _changed(self, topic: str | None) -> None:
        self._answers.forget(topic)

    def _uptime_ms(self) -> int:
        return self._now_ms() - self._started_ms


def _loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
