"""What a relay can be told: how much it takes at a time, how long it tries, and when it tells somebody."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypedDict

from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.outbox.rows import UnsentMessage

DAY = 86400.0

MOST_IN_BATCH = 5000
"""Several times as many are named in one statement, and databases have limits for that."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """Times are seconds."""

    in_order: bool = True
    """Whether messages of a topic with the same sharding key wait for those added before them. All relays of a
    table have the same."""
    batch_size: int = 100
    """How many messages are taken at a time."""
    batch_bytes: int = 32 << 20
    poll_interval: float = 1.0
    """How often it is looked for messages while there are none."""
    lease: float = 60.0
    """After this, messages taken by a relay that does not finish may be taken by another one."""
    first_retry: float = 1.0
    longest_retry: float = 60.0
    """How long a message waits that could not be sent: the first time, twice as long each time, and at most."""
    resend_unsaved: bool = True
    """Whether a message is sent again that a broker took but could not confirm to be on its disk or its slave."""
    alarm_after: int = 10
    """After so many failures of a message, and after as many more, ``alarm`` is called. It is still tried on."""
    alarm: Callable[[UnsentMessage], object] | None = None
    """Without one, an error is logged."""
    keep_sent: float | None = 7 * DAY
    """How long messages stay in the table that were sent; None for ever."""
    clean_interval: float = 60.0
    """How often those are deleted whose time has come."""

    def __post_init__(self) -> None:
        for name in (
            *("poll_interval", "lease", "first_retry", "longest_retry", "clean_interval"),
            *("batch_bytes", "alarm_after"),
        ):
            if not getattr(self, name) > 0:
                raise InvalidMessageError(f"{name} must be more than 0, not {getattr(self, name)}")
        if not 1 <= self.batch_size <= MOST_IN_BATCH:
            raise InvalidMessageError(f"batch_size must be from 1 to {MOST_IN_BATCH}, not {self.batch_size}")
        if self.keep_sent is not None and self.keep_sent < 0:
            raise InvalidMessageError(f"keep_sent must be 0 or more, or None, not {self.keep_sent}")

    def retry_after(self, failures: int) -> float:
        """How long a message waits that failed so many times."""
        # The power alone would overflow after a thousand failures.
        return min(self.longest_retry, self.first_retry * 2.0 ** min(failures - 1, 64))


class RelayOptions(TypedDict, total=False):
    """The keywords of a relay: the fields of RelayConfig, where they are explained."""

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
