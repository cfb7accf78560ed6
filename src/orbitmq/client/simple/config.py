"""Options of simple consumers, with times in seconds."""

from __future__ import annotations

import dataclasses

from orbitmq.client.config import ClientOptions
from orbitmq.client.errors import InvalidOptionError
from orbitmq.protocol.message.pop_receipt import MOST_MESSAGES

MAX_INVISIBLE = 259_200.0
"""Three days: the default maximum of a broker's timer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimpleConfig:
    """Options of a simple consumer."""

    await_duration: float = 15.0
    """Default timeout of ``receive``."""
    invisible_duration: float = 30.0
    """Default time for which received messages are invisible to other members."""
    max_messages: int = 16
    """Default maximum of messages per ``receive``."""
    max_reconsume_times: int = 16
    """Redeliveries of a message before the dead letter queue. -1: unlimited."""
    consume_from_first: bool = True
    """Whether a new group begins with the oldest message of a topic instead of the newest."""
    start_from: str | None = None
    """The same by the names of the other consumers: ``"earliest"`` or ``"latest"``. Default: ``"earliest"``."""

    def __post_init__(self) -> None:
        if self.start_from is not None:
            if self.start_from not in {"earliest", "latest"}:
                raise InvalidOptionError(
                    f'start_from of a simple consumer is "earliest" or "latest", not {self.start_from!r}'
                )
            object.__setattr__(self, "consume_from_first", self.start_from == "earliest")
        check_count(self.max_messages)
        check_invisible(self.invisible_duration)
        if self.await_duration < 0:
            raise InvalidOptionError(f"await_duration must not be less than 0, it is {self.await_duration!r}")


def check_count(count: int) -> None:
    if not 1 <= count <= MOST_MESSAGES:
        raise InvalidOptionError(f"1 to {MOST_MESSAGES} messages can be received per call, not {count}")


def check_invisible(seconds: float) -> None:
    if not 0 <= seconds <= MAX_INVISIBLE:
        raise InvalidOptionError(f"the invisible time is 0 to {MAX_INVISIBLE:g} seconds, not {seconds!r}")


class SimpleOptions(ClientOptions, total=False):
    """Keywords of a simple consumer: the fields of SimpleConfig and ClientConfig, which document them."""

    await_duration: float
    invisible_duration: float
    max_messages: int
    max_reconsume_times: int
    consume_from_first: bool
    start_from: str | None
