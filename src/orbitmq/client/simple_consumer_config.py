"""The options of a simple consumer, times in seconds."""

from __future__ import annotations

import dataclasses

from orbitmq.client.config import ClientOptions
from orbitmq.client.errors import InvalidMessageError
from orbitmq.protocol.pop import MOST_MESSAGES

LONGEST_INVISIBLE = 259_200.0
"""Three days: as long as a broker's timer reaches, unless it is set up otherwise."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimpleConfig:
    """What a simple consumer can be told."""

    await_duration: float = 15.0
    """How long ``receive`` waits for a message if it is not told."""
    invisible_duration: float = 30.0
    """For how long a message is hidden from others if ``receive`` is not told."""
    max_messages: int = 16
    """So many messages come at most if ``receive`` is not told."""
    max_reconsume_times: int = 16
    """A message that was handed out more often than this and the first time becomes a dead letter. -1: never."""
    consume_from_first: bool = True
    """Whether a new group begins with the oldest message of a topic, or else with the newest."""

    def __post_init__(self) -> None:
        check_count(self.max_messages)
        check_invisible(self.invisible_duration)
        if self.await_duration < 0:
            raise InvalidMessageError(f"await_duration must not be less than 0, it is {self.await_duration!r}")


def check_count(count: int) -> None:
    if not 1 <= count <= MOST_MESSAGES:
        raise InvalidMessageError(f"1 to {MOST_MESSAGES} messages can be received at once, not {count}")


def check_invisible(seconds: float) -> None:
    if not 0 <= seconds <= LONGEST_INVISIBLE:
        raise InvalidMessageError(
            f"messages are hidden for 0 to {LONGEST_INVISIBLE:g} seconds, not for {seconds!r}"
        )


class SimpleOptions(ClientOptions, total=False):
    """The keywords of a simple consumer: the fields of SimpleConfig and ClientConfig, where they are explained."""

    await_duration: float
    invisible_duration: float
    max_messages: int
    max_reconsume_times: int
    consume_from_first: bool
