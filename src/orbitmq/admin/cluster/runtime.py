"""Live figures of a broker, typed where tools use them, and the state of its replication."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.admin.cluster.topology import BrokerAddress
    from orbitmq.protocol.bodies import HARuntimeInfo


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerRuntime:
    """The runtime information of one broker. ``table`` has all of it, by RocketMQ's names."""

    address: str
    table: Mapping[str, str]

    @property
    def version(self) -> str:
        return self.table.get("brokerVersionDesc", "")

    @property
    def is_active(self) -> bool:
        """It takes requests; a slave that acts for no master does not."""
        return self.table.get("brokerActive", "true") == "true"

    @property
    def put_tps(self) -> float:
        """Messages stored per second, over the last ten seconds."""
        return self._rate("putTps")

    @property
    def get_tps(self) -> float:
        """Messages handed out per second, over the last ten seconds."""
        return self._rate("getTransferredTps")

    @property
    def boot_ms(self) -> int:
        return self._number("bootTimestamp")

    @property
    def disk_ratio(self) -> float:
        """Used share of the disk of the commit log, 0 to 1; -1 where the broker does not know it."""
        return self._decimal("commitLogDiskRatio", -1.0)

    @property
    def queue_disk_ratio(self) -> float:
        """Used share of the disk of the consume queues."""
        return self._decimal("consumeQueueDiskRatio", -1.0)

    @property
    def log_min_offset(self) -> int:
        return self._number("commitLogMinOffset", -1)

    @property
    def log_max_offset(self) -> int:
        return self._number("commitLogMaxOffset", -1)

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that the consume queues do not have yet."""
        return self._number("dispatchBehindBytes")

    @property
    def page_cache_wait_ms(self) -> int:
        return self._number("pageCacheLockTimeMills")

    @property
    def earliest_message_ms(self) -> int:
        """Store time of the oldest message; 0 if there is none."""
        return max(0, self._number("earliestMessageTimeStamp"))

    @property
    def send_queue_size(self) -> int:
        """Sends that wait at the broker."""
        return self._number("sendThreadPoolQueueSize")

    @property
    def pull_queue_size(self) -> int:
        return self._number("pullThreadPoolQueueSize")

    @property
    def timer_messages(self) -> int:
        """Messages that wait for their time in the timer wheel."""
        return self._number("timerCongestNum")

    @property
    def puts_today(self) -> int:
        return self._number("msgPutTotalTodayNow") - self._number("msgPutTotalTodayMorning")

    @property
    def gets_today(self) -> int:
        return self._number("msgGetTotalTodayNow") - self._number("msgGetTotalTodayMorning")

    @property
    def puts_yesterday(self) -> int:
        return self._number("msgPutTotalTodayMorning") - self._number("msgPutTotalYesterdayMorning")

    @property
    def gets_yesterday(self) -> int:
        return self._number("msgGetTotalTodayMorning") - self._number("msgGetTotalYesterdayMorning")

    @property
    def delay_levels(self) -> dict[int, tuple[int, int]]:
        """By delay level: the offset that was delivered up to, and the end of the level's queue."""
        prefix = "scheduleMessageOffset_"
        found = {}
        for name, value in self.table.items():
            level, parts = name.removeprefix(prefix), value.split(",")
            if name.startswith(prefix) and level.isdecimal() and len(parts) == 2:
                found[int(level)] = (_int(parts[0]), _int(parts[1]))
        return dict(sorted(found.items()))

    def _number(self, name: str, otherwise: int = 0) -> int:
        return _int(self.table.get(name, ""), otherwise)

    def _decimal(self, name: str, otherwise: float = 0.0) -> float:
        return _float(self.table.get(name, ""), otherwise)

    def _rate(self, name: str) -> float:
        """The first of three rates: ten seconds, one minute, ten minutes."""
        return _float((self.table.get(name, "").split() or [""])[0])


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker in a list. ``runtime`` is None if it did not respond, for the ``reason``."""

    broker: BrokerAddress
    runtime: BrokerRuntime | None
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class SlaveStatus:
    """A slave as its master sees it."""

    address: str
    ack_offset: int
    lag_bytes: int
    is_in_sync: bool
    bytes_per_second: int
    transfer_from: int


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """The replication of a broker. ``slaves`` are for a master, ``master_address`` and the rest for a slave."""

    address: str
    is_master: bool
    log_max_offset: int
    in_sync_slaves: int
    slaves: tuple[SlaveStatus, ...]
    master_address: str = ""
    bytes_per_second: int = 0
    last_read_ms: int = 0
    last_write_ms: int = 0
    master_flush_offset: int = 0

    @classmethod
    def of(cls, address: str, info: HARuntimeInfo) -> ReplicationStatus:
        slaves = tuple(
            SlaveStatus(
                one.addr or "",
                one.slave_ack_offset,
                one.diff,
                one.in_sync,
                one.transferred_byte_in_second,
                one.transfer_from_where,
            )
            for one in info.ha_connection_info
        )
        client = info.ha_client_runtime_info
        if info.master:
            return cls(address, True, info.master_commit_log_max_offset, info.in_sync_slave_nums, slaves)
        return cls(
            address,
            False,
            client.max_offset,
            0,
            (),
            client.master_addr or "",
            client.transferred_byte_in_second,
            client.last_read_timestamp,
            client.last_write_timestamp,
            client.master_flush_offset,
        )


def _int(text: str, otherwise: int = 0) -> int:
    try:
        return int(text)
    except ValueError:
        return otherwise


def _float(text: str, otherwise: float = 0.0) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise
