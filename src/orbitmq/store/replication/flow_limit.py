"""FlowLimit: bytes that a master may send to one slave in a second (RocketMQ: FlowMonitor), and its rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.store.replication.settings import ReplicationSettings


class FlowLimit:
    """Counts sent or received bytes in windows of a second. Times are seconds of a monotonic clock."""

    def __init__(self, config: ReplicationSettings, now: float) -> None:
        self._config = config
        self._window = int(now)
        self._sent = 0
        self._last = 0

    def _roll(self, now: float) -> None:
        window = int(now)
        if window != self._window:
            self._last = self._sent if window == self._window + 1 else 0
            self._window, self._sent = window, 0

    def sent(self, size: int, now: float) -> None:
        self._roll(now)
        self._sent += size

    def room(self, now: float) -> int:
        """Bytes that may be sent now; without ``haFlowControlEnable`` there is no limit."""
        if not self._config.ha_flow_control_enable:
            return 1 << 62
        self._roll(now)
        return max(self._config.max_ha_transfer_byte_in_second - self._sent, 0)

    def per_second(self, now: float) -> int:
        """Bytes sent in the last whole second."""
        self._roll(now)
        return self._last
