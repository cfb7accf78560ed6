"""The parameters of an audit, checked."""

from __future__ import annotations

import dataclasses
import datetime

from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.spark.errors import OptionError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """All parameters of an audit."""

    nameserver: str | None = None
    topics: tuple[str, ...] = ()
    """None: all but RocketMQ's own."""
    archive: str | None = None
    stores: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    """Messages that were stored at or after the one, before the other."""
    groups: tuple[str, ...] = ()
    """None: those that brokers know."""
    trace_topic: str = TRACE_TOPIC
    tolerance_ms: int = 1000
    """So much may a message be older than one before it in its queue: clocks of producers differ."""
    stuck_seconds: int = 300
    lag_threshold: int = 1000
    slow_ms: int = 1000

    def __post_init__(self) -> None:
        """Raises OptionError."""
        if not (self.nameserver or self.archive or self.stores):
            raise OptionError("there is nothing to audit: give a nameserver, an archive or a store directory")
        for name in ("tolerance_ms", "stuck_seconds", "lag_threshold", "slow_ms"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} cannot be less than 0")
        since, until = self.since_ms, self.until_ms
        if since is not None and until is not None and since >= until:
            raise OptionError("nothing is stored since a time and before an earlier one: swap since and until")

    @property
    def has_window(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None


def milliseconds_of(time: datetime.datetime | int | None) -> int | None:
    """A time without a zone is one of this machine."""
    if isinstance(time, datetime.datetime):
        return round(time.timestamp() * 1000)
    return time
