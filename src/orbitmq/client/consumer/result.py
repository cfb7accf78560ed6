"""ConsumeResult: what a handler returns when plain return or raise is not enough."""

from __future__ import annotations

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

MAX_LEVEL = 18


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
    def later(cls, delay_level: int = 0, *, suspend: float | None = None) -> ConsumeResult:
        """Retry after the delay of a level, or in an orderly queue after ``suspend`` seconds."""
        return cls(succeeded=False, delay_level=delay_level, suspend=suspend)

    def done_of(self, count: int) -> int:
        """Number of consumed messages of ``count``, from the first on."""
        if not self.succeeded:
            return 0
        return count if self.ack_index is None else min(self.ack_index + 1, count)


ConsumeResult.SUCCESS = ConsumeResult(succeeded=True)
ConsumeResult.LATER = ConsumeResult(succeeded=False)


def result_of(returned: object) -> ConsumeResult:
    """The result that a handler's return value stands for."""
    return returned if isinstance(returned, ConsumeResult) else ConsumeResult.SUCCESS
