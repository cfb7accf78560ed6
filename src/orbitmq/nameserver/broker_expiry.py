"""Expiry of brokers: removes those that disconnected or whose heartbeats have stopped (scanNotActiveBroker)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.platform.loop_slices import in_slices
from orbitmq.remoting import Connection
from orbitmq.remoting.processor import run_in_background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.nameserver.brokers import Broker, MinBrokerIdChange
    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.route_table import RouteTable

log = logging.getLogger("orbitmq.nameserver")

REMOVED_AT_ONCE = 8
"""Removal steps that run at once; each takes up to some milliseconds."""


class BrokerExpiry:
    """Scans the route table between ``start`` and ``stop``."""

    def __init__(
        self,
        table: RouteTable,
        config: NameServerConfig,
        now_ms: Callable[[], int],
        notify: Callable[[MinBrokerIdChange], None],
    ) -> None:
        """``notify`` is called when the broker with the smallest id of a group has changed."""
        self._table = table
        self._config = config
        self._now_ms = now_ms
        self._notify = notify
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        # Read each time, because it can change at run time.
        seconds = self._config.scan_not_active_broker_interval / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._scan_again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _scan_again(self) -> None:
        self.start()
        self.scan()

    def scan(self) -> None:
        """Remove brokers past their heartbeat timeout, and close their connections."""
        self._remove(self._table.silent(self._now_ms()), "heartbeat timeout", closes=True)

    def remove_connected(self, connection: Connection) -> None:
        """Remove the brokers of a closed connection from all routes."""
        self._remove(self._table.connected_by(connection), "connection closed")

    def _remove(self, brokers: list[Broker], why: str, *, closes: bool = False) -> None:
        """Remove brokers: a few at once, many in time slices between requests."""
        steps = self._table.removing(brokers)
        for number, step in enumerate(steps, 1):
            self._removed(step, why, closes=closes)
            if number == REMOVED_AT_ONCE:
                run_in_background(self._remove_the_rest(steps, why, closes=closes))
                return

    async def _remove_the_rest(
        self, steps: Iterator[tuple[Broker, MinBrokerIdChange | None] | None], why: str, *, closes: bool
    ) -> None:
        async for step in in_slices(steps):
            self._removed(step, why, closes=closes)

    def _removed(self, step: tuple[Broker, MinBrokerIdChange | None] | None, why: str, *, closes: bool) -> None:
        if step is None:
            return
        broker, change = step
        log.info("broker registration: %s (%s, id %d) removed: %s", broker.name, broker.address, broker.id, why)
        if change is not None:
            self._notify(change)
        if closes and isinstance(broker.connection, Connection) and not self._table.is_used(broker.connection):
            broker.connection.close()
