"""When a message wants to be delivered, as its properties say, and why that may be refused."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from orbitmq.protocol import property_names as names
from orbitmq.store import AppendRefusedError, PutStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.store import StoreConfig

_OUT = names.TIMER_OUT_MS.encode()
_SECONDS = names.TIMER_DELAY_SEC.encode()
_MILLISECONDS = names.TIMER_DELAY_MS.encode()
_TIME = names.TIMER_DELIVER_MS.encode()

_RANDOM_PARTS = 1000

_NUMBER = re.compile(rb"[+-]?[0-9]{1,19}")
"""What Java reads as a long, but for its last few."""


def is_for_a_time(values: Mapping[bytes, bytes]) -> bool:
    """Whether a message says when it is to be delivered, and did not come out of the timer."""
    return _OUT not in values and (_TIME in values or _SECONDS in values or _MILLISECONDS in values)


def delivery_time(values: Mapping[bytes, bytes], now_ms: int) -> int | None:
    """The time in milliseconds; None if a message has none, or came out of the timer. Raises ValueError."""
    if _OUT in values:
        return None
    # The first one that is there counts, whatever the others say.
    if _SECONDS in values:
        return now_ms + _number(values[_SECONDS]) * 1000
    if _MILLISECONDS in values:
        return now_ms + _number(values[_MILLISECONDS])
    return _number(values[_TIME]) if _TIME in values else None


def _number(text: bytes) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no number")
    return int(text)


def illegal(config: StoreConfig) -> AppendRefusedError:
    """What is said of a time that is none, is too far away, or has come for a message that takes another back."""
    longest = config.timer_max_delay_sec * 1000
    return AppendRefusedError(
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
        f"timer message illegal, the delay time should not be bigger than the max delay {longest}ms; "
        "or if set del msg, the delay time should be bigger than the current time",
    )


def refuse_if_crowded(waiting: int, config: StoreConfig) -> None:
    """Raise AppendRefusedError if too many messages wait in a slot; between the limit and twice that by chance."""
    most = config.timer_congest_num_each_slot
    if waiting <= most:
        return
    # As RocketMQ throws the dice: the more messages wait, the rarer is the refusal.
    if waiting >= 2 * most or random.randrange(_RANDOM_PARTS) > _RANDOM_PARTS * (waiting - most) / (most + 0.1):
        raise AppendRefusedError(
            PutStatus.WHEEL_TIMER_FLOW_CONTROL,
            f"timer message is under flow control, max num limit is {2 * most} or the current value is greater "
            f"than {most} and less than {2 * most}, trigger random flow control",
        )


def rolling_slot(due_ms: int, now_ms: int, roll_slots: int, precision_ms: int) -> int:
    """The slot that a message waits in first that is due later than the wheel reaches."""
    window = roll_slots * precision_ms
    # Not so that it rolls again shortly before its time.
    is_near = due_ms - now_ms - window < roll_slots // 3 * precision_ms
    return now_ms + (roll_slots // 2 * precision_ms if is_near else window)
