"""What a handler may say about messages when returning or raising is not enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.messages import ReceivedMessage

MessageHandler: TypeAlias = Callable[[ReceivedMessage], Any]
BatchHandler: TypeAlias = Callable[[Sequence[ReceivedMessage]], Any]
Handler: TypeAlias = MessageHandler | BatchHandler
"""A function or a coroutine function. Returning means done, raising means again later."""

DEAD_LETTER = -1
"""The delay level that sends a message to the dead letters at once."""

MAX_LEVEL = 18


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumeResult:
    """How consuming ended. ``SUCCESS`` and ``LATER`` are what returning and raising mean."""

    succeeded: bool
    ack_index: int | None = None
    """Of a batch, the place of the last message that is done; the rest comes again. None: all of them."""
    delay_level: int = 0
    """How long a message that failed waits: a level, 0 for longer each time, -1 for the dead letters at once."""
    suspend: float | None = None
    """Seconds that an orderly queue waits before it tries again."""

    SUCCESS: ClassVar[ConsumeResult]
    LATER: ClassVar[ConsumeResult]

    def __post_init__(self) -> None:
        if not DEAD_LETTER <= self.delay_level <= MAX_LEVEL:
            raise InvalidMessageError(f"a delay level is -1 to {MAX_LEVEL}, not {self.delay_level}")
        if self.ack_index is not None and self.ack_index < -1:
            raise InvalidMessageError(f"ack_index is the place of a message, or -1 for none, not {self.ack_index}")

    @classmethod
    def success(cls, ack_index: int | None = None, *, delay_level: int = 0) -> ConsumeResult:
        """Done; of a batch up to ``ack_index``, and what comes after it again later."""
        return cls(succeeded=True, ack_index=ack_index, delay_level=delay_level)

    @classmethod
    def later(cls, delay_level: int = 0, *, suspend: float | None = None) -> ConsumeResult:
        """Again, after the delay of a level, or in an orderly queue after ``suspend`` seconds."""
        return cls(succeeded=False, delay_level=delay_level, suspend=suspend)

    def done_of(self, count: int) -> int:
        """How many of so many messages are done, from the first on."""
        if not self.succeeded:
            return 0
        return count if self.ack_index is None else min(self.ack_index + 1, count)


ConsumeResult.SUCCESS = ConsumeResult(succeeded=True)
ConsumeResult.LATER = ConsumeResult(succeeded=False)


def result_of(returned: object) -> ConsumeResult:
    """What is meant by something that a handler returned."""
    return returned if isinstance(returned, ConsumeResult) else ConsumeResult.SUCCESS
