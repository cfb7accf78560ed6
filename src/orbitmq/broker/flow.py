"""Whether the broker takes messages now, kept as one value that the path of every message looks at.

It takes none while the store's gate is closed, before the time an operator has set, and while the event loop is so
far behind that what is taken could not be answered in time. RocketMQ measures the last one by how long an append
holds its lock; here appends run on the loop, so the loop's own delay says the same.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.store import Clock, MessageStore

TICK_SECONDS = 0.1

BUSY = (int(ResponseCode.SYSTEM_BUSY), "[REJECTREQUEST]system busy, start flow control for a while")
"""Clients know the text by its beginning and try another broker."""


class SendFlow:
    """Watches loop and store between ``start`` and ``stop``."""

    def __init__(self, config: BrokerConfig, store: MessageStore, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self.refusal: tuple[int, str] | None = None
        """Code and remark for every message that comes now; None if messages are taken."""
        self.lag_ms = 0
        """By how much the loop was late the last time."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.look(0)
        self._timer = loop.call_later(TICK_SECONDS, self._tick, loop, loop.time() + TICK_SECONDS)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._timer = loop.call_later(TICK_SECONDS, self._tick, loop, now + TICK_SECONDS)
        self.look(max(int((now - due) * 1000), 0))

    def look(self, lag_ms: int) -> None:
        """Decide anew, given by how many milliseconds the loop is late."""
        self.lag_ms = lag_ms
        opens_at = self._config.start_accept_send_request_time_stamp
        reason = self._store.appender.gate.reason
        if lag_ms > self._store.config.os_page_cache_busy_time_out_mills:
            self.refusal = BUSY
        elif opens_at > 0 and self._clock.now_ms() < opens_at:
            self.refusal = int(ResponseCode.SYSTEM_ERROR), f"broker unable to service, until {_moment(opens_at)}"
        elif reason is None:
            self.refusal = None
        elif self.refusal is None or not self.refusal[1].endswith(f"({reason})"):
            # The disks are asked once for each reason, not ten times a second.
            self.refusal = int(ResponseCode.SERVICE_NOT_AVAILABLE), self.unavailable(reason)

    def unavailable(self, reason: str) -> str:
        """The remark for a store that takes no messages: RocketMQ's, with the reason that applies behind it."""
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


def _moment(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms // 1000)) + f",{ms % 1000:03d}"
