"""Flow control of sends (RocketMQ: BrokerFastFailure): one value that every send checks.

Sends are refused while the admission gate of the store is closed, before ``startAcceptSendRequestTimeStamp``, and
while the event loop lags so much that responses would be late. RocketMQ measures the last one by how long an append
holds its lock; here appends run on the loop, so its lag is the equivalent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.metrics.instrument import Histogram
    from orbitmq.store import Clock, MessageStore

log = logging.getLogger("orbitmq.broker")

TICK_SECONDS = 0.1

BUSY = (int(ResponseCode.SYSTEM_BUSY), "[REJECTREQUEST]system busy, start flow control for a while")
"""Clients recognize the beginning of the text and retry on another broker."""


TOO_FEW_REPLICAS = (int(ResponseCode.SYSTEM_ERROR), "in-sync replicas not enough")
"""RocketMQ's status IN_SYNC_REPLICAS_NOT_ENOUGH: nothing is stored, and clients retry on another broker."""


class SendFlow:
    """Watches the event loop and the store between ``start`` and ``stop``."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, clock: Clock, lags: Histogram | None = None
    ) -> None:
        """``lags`` gets every measured lag of the event loop, in seconds."""
        self._lags = lags
        self._config = config
        self._store = store
        self._clock = clock
        self._refuses_all = store.config.broker_role is BrokerRole.SLAVE and not config.enable_slave_acting_master
        """A slave refuses sends as a busy broker does. In a group whose slaves may act as master, RocketMQ answers
        that the service is not available: that is the reason of its gate."""
        self.refusal: tuple[int, str] | None = BUSY if self._refuses_all else None
        """Code and remark of the refusal of every send; None if sends are accepted."""
        self.on_change: Callable[[tuple[int, str] | None], None] | None = None
        """Called when sends begin or cease to be refused."""
        self.shortage: Callable[[], bool] = lambda: False
        """True while too few replicas are in sync to store anything (``enableSlaveActingMaster``)."""
        self.lag_ms = 0
        """The last measured lag of the event loop."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.update(0)
        self._timer = loop.call_later(TICK_SECONDS, self._tick, loop, loop.time() + TICK_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._timer = loop.call_later(TICK_SECONDS, self._tick, loop, now + TICK_SECONDS)
        lag = max(now - due, 0.0)
        if self._lags is not None:
            self._lags.observe(lag)
        self.update(int(lag * 1000))

    def update(self, lag_ms: int) -> None:
        """Set the refusal for the lag of the event loop in milliseconds."""
        before = self.refusal
        self._update(lag_ms)
        if self.on_change is not None and (before is None) != (self.refusal is None):
            self.on_change(self.refusal)
        if self.refusal != before:
            _log_change(before, self.refusal)

    def _update(self, lag_ms: int) -> None:
        self.lag_ms = lag_ms
        if self._refuses_all:
            return
        opens_at = self._config.start_accept_send_request_time_stamp
        reason = self._store.appender.gate.reason
        if lag_ms > self._store.config.os_page_cache_busy_time_out_mills:
            self.refusal = BUSY
        elif opens_at > 0 and self._clock.now_ms() < opens_at:
            self.refusal = int(ResponseCode.SYSTEM_ERROR), f"broker unable to service, until {_moment(opens_at)}"
        elif reason is None:
            self.refusal = TOO_FEW_REPLICAS if self.shortage() else None
        elif self.refusal is None or not self.refusal[1].endswith(f"({reason})"):
            # Disk usage is read once per reason, not ten times a second.
            self.refusal = int(ResponseCode.SERVICE_NOT_AVAILABLE), self.unavailable(reason)

    def unavailable(self, reason: str) -> str:
        """The remark for a store that accepts no messages: RocketMQ's sentence, followed by the actual reason."""
        config = self._store.config
        log = min(self._used(path) for path in config.commit_log_dirs)
        queues, index = self._used(config.path("consumequeue")), self._used(config.path("index"))
        return (
            "service not available now. It may be caused by one of the following reasons: the broker's disk is "
            f"full [CL: {log:5.2f} CQ: {queues:5.2f} INDEX: {index:5.2f}], messages are put to the slave, message "
            f"store has been shut down, etc. ({reason})"
        )

    def _used(self, path: str) -> float:
        try:
            return self._store.disk.space(path).ratio
        except OSError:
            return -1.0


def _log_change(before: tuple[int, str] | None, now: tuple[int, str] | None) -> None:
    """Log when sends are refused for another reason, and accepted again. Flow control changes too often."""
    if now is not None and now is not BUSY:
        log.error("send: refused: %s", now[1])
    elif before is not None and before is not BUSY and now is None:
        log.info("send: accepted again")


def _moment(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms // 1000)) + f",{ms % 1000:03d}"
