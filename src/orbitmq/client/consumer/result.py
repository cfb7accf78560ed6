"""ConsumeResult: what a handler returns when plain return or raise is not enough."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.message import ReceivedMessage

MessageHandler: TypeAlias = Callable[[ReceivedMessage], Any]
BatchHandler: TypeAlias = Callable[[Sequence[ReceivedMessage]], Any]
Handler: TypeAlias = MessageHandler | BatchHandler
"""A function or coroutine function. Return means consumed, an exception means retry."""

DEAD_LETTER = -1
"""The delay level that sends a message to the dead letter queue at once."""

LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Delays of RocketMQ's levels, from 1 on. Brokers can be configured otherwise (``messageDelayLevel``)."""

MAX_LEVEL = len(LEVEL_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumeResult:
    """Result of a handler call. ``SUCCESS`` and ``LATER`` are the meaning of return and raise."""

    succeeded: bool
    ack_index: int | None = None
    """Index of the last consumed message of a batch; the rest is retried. None: all are consumed."""
    delay_level: int = 0
    """Retry delay of a failed message: a level, 0 to back off, -1 for the dead letter queue at once."""
    suspend: float | None = None
    """Seconds that an orderly queue waits before the retry."""

    SUCCESS: ClassVar[ConsumeResult]
    LATER: ClassVar[ConsumeResult]

    def __post_init__(self) -> None:
        if not DEAD_LETTER <= self.delay_level <= MAX_LEVEL:
            raise InvalidMessageError(f"a delay level is -1 to {MAX_LEVEL}, not {self.delay_level}")
        if self.ack_index is not None and self.ack_index < -1:
            raise InvalidMessageError(f"ack_index is the index of a message, or -1 for none, not {self.ack_index}")

    @classmethod
    def success(cls, ack_index: int | None = None, *, delay_level: int = 0) -> ConsumeResult:
        """Consumed; with ``ack_index``, the messages of a batch behind it are retried."""
        return cls(succeeded=True, ack_index=ack_index, delay_level=delay_level)

    @classmethod
    def later(
        cls, delay_level: int = 0, *, delay: float | None = None, suspend: float | None = None
    ) -> ConsumeResult:
        """Retry after ``delay`` seconds, or after the delay of a level.

        Brokers have levels only: ``delay`` is rounded up to the next one of 1, 5, 10, 30 s, 1 to 10 min, 20 min,
        30 min, 1 h and 2 h. In an orderly queue it is exact, as ``suspend`` is.
        """
        if delay is not None:
            if delay_level or suspend is not None:
                raise InvalidMessageError("give one of delay, delay_level and suspend")
            delay_level, suspend = _level_of(delay), delay
        return cls(succeeded=False, delay_level=delay_level, suspend=suspend)

    @classmethod
    def dead_letter(cls) -> ConsumeResult:
        """Move the message to the dead letter queue of the group, without a retry."""
        return cls(succeeded=False, delay_level=DEAD_LETTER)

    def done_of(self, count: int) -> int:
        """Number of consumed messages of ``count``, from the first on."""
        if not self.succeeded:
            return 0
        return count if self.ack_index is None else min(self.ack_index + 1, count)


ConsumeResult.SUCCESS = ConsumeResult(succeeded=True)
ConsumeResult.LATER = ConsumeResult(succeeded=False)


def _level_of(seconds: float) -> int:
    """The lowest level with at least this delay. Raises InvalidMessageError."""
    if not 0 <= seconds <= LEVEL_SECONDS[-1]:
        raise InvalidMessageError(f"the delay of a retry is 0 to {LEVEL_SECONDS[-1]} seconds, not {seconds!r}")
    return bisect.bisect_left(LEVEL_SECONDS, seconds) + 1


def result_of(returned: object) -> ConsumeResult:
    """The result that a handler's return value stands for."""
    return returned if isinstance(returned, ConsumeResult) else ConsumeResult.SUCCESS
