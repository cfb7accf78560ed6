"""Options of a relay: batch size, retries, alarms and retention."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypedDict

from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.outbox.rows import UnsentMessage

DAY = 86400.0

MAX_IN_BATCH = 5000
"""Statements have several times as many parameters, which databases limit."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """Options of a relay. Times are seconds."""

    in_order: bool = True
    """Send messages of a topic with the same sharding key in order. All relays of a table need the same value."""
    batch_size: int = 100
    """Maximum of messages per claim."""
    batch_bytes: int = 32 << 20
    poll_interval: float = 1.0
    """Interval of polls while the table is empty."""
    lease: float = 60.0
    """Time after which another relay may claim the messages of one that has not finished."""
    first_retry: float = 1.0
    longest_retry: float = 60.0
    """Exponential backoff of retries: first and maximum delay."""
    resend_unsaved: bool = True
    """Resend a message that a broker accepted without confirming the flush or the slave."""
    alarm_after: int = 10
    """``alarm`` is called every this many failures of a message. Retries continue."""
    alarm: Callable[[UnsentMessage], object] | None = None
    """Default: log an error."""
    keep_sent: float | None = 7 * DAY
    """Retention of sent messages; None: unlimited."""
    clean_interval: float = 60.0
    """Interval of deleting sent messages after their retention."""

    def __post_init__(self) -> None:
        for name in (
            *("poll_interval", "lease", "first_retry", "longest_retry", "clean_interval"),
            *("batch_bytes", "alarm_after"),
        ):
            if not getattr(self, name) > 0:
                raise InvalidMessageError(f"{name} must be more than 0, not {getattr(self, name)}")
        if not 1 <= self.batch_size <= MAX_IN_BATCH:
            raise InvalidMessageError(f"batch_size must be from 1 to {MAX_IN_BATCH}, not {self.batch_size}")
        if self.keep_sent is not None and self.keep_sent < 0:
            raise InvalidMessageError(f"keep_sent must be 0 or more, or None, not {self.keep_sent}")

    def retry_after(self, failures: int) -> float:
        """Backoff after this many failures."""
        # Unbounded, the power would overflow after a thousand failures.
        return min(self.longest_retry, self.first_retry * 2.0 ** min(failures - 1, 64))


class RelayOptions(TypedDict, total=False):
    """Keywords of a relay: the fields of RelayConfig, which documents them."""

    in_order: bool
    batch_size: int
    batch_bytes: int
    poll_interval: float
    lease: float
    first_retry: float
    longest_retry: float
    resend_unsaved: bool
    alarm_after: int
    alarm: Callable[[UnsentMessage], object] | None
    keep_sent: float | None
    clean_interval: float
