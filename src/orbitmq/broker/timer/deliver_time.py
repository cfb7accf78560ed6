"""Delivery time of a message: parsed from its properties, validated, mapped to a slot of the timer wheel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orbitmq.protocol.message import property_names as names
from orbitmq.store import AppendRefusedError, PutStatus
from orbitmq.store.timer.timer_wheel import WINDOW

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from orbitmq.store import StoreConfig

BLANK_SLOTS = 60
"""Slots left free between the end of the wheel and its beginning."""

_OUT = names.TIMER_OUT_MS.encode()
_SECONDS = names.TIMER_DELAY_SEC.encode()
_MILLISECONDS = names.TIMER_DELAY_MS.encode()
_TIME = names.TIMER_DELIVER_MS.encode()

_RANDOM_PARTS = 1000

_NUMBER = re.compile(rb"[+-]?[0-9]{1,19}")
"""Numbers that Java parses as a long, except for the largest ones of 19 digits."""


def has_delivery_time(values: Mapping[bytes, bytes]) -> bool:
    """True if the properties request a delivery time and the message did not come from the timer."""
    return _OUT not in values and (_TIME in values or _SECONDS in values or _MILLISECONDS in values)


def delivery_time(values: Mapping[bytes, bytes], now_ms: int) -> int | None:
    """The delivery time in milliseconds; None if there is none, or the message came from the timer. Raises
    ValueError."""
    if _OUT in values:
        return None
    # The first property that is present wins.
    if _SECONDS in values:
        return now_ms + _number(values[_SECONDS]) * 1000
    if _MILLISECONDS in values:
        return now_ms + _number(values[_MILLISECONDS])
    return _number(values[_TIME]) if _TIME in values else None


def _number(text: bytes) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def illegal(config: StoreConfig) -> AppendRefusedError:
    """Error for a delivery time that is malformed or too far away, or past for a recall marker."""
    longest = config.timer_max_delay_sec * 1000
    return AppendRefusedError(
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
        f"timer message illegal, the delay time should not be bigger than the max delay {longest}ms; "
        "or if set del msg, the delay time should be bigger than the current time",
    )


def check_slot_limit(waiting: int, config: StoreConfig, rng: random.Random) -> None:
    """Flow control of a slot: raise AppendRefusedError above the limit, at random between the limit and twice
    it."""
    most = config.timer_congest_num_each_slot
    if waiting <= most:
        return
    # RocketMQ's formula: the more messages wait, the rarer is the refusal.
    if waiting >= 2 * most or rng.randrange(_RANDOM_PARTS) > _RANDOM_PARTS * (waiting - most) / (most + 0.1):
        raise AppendRefusedError(
            PutStatus.WHEEL_TIMER_FLOW_CONTROL,
            f"timer message is under flow control, max num limit is {2 * most} or the current value is greater "
            f"than {most} and less than {2 * most}, trigger random flow control",
        )


def roll_window(config: StoreConfig) -> int:
    """``timerRollWindowSlot``, or the whole wheel if that is out of range: messages beyond it roll."""
    slots = config.timer_roll_window_slot
    return slots if 2 <= slots <= WINDOW - BLANK_SLOTS else WINDOW - BLANK_SLOTS


def rolling_slot(due_ms: int, now_ms: int, roll_slots: int, precision_ms: int) -> int:
    """First slot of a message that is due beyond the range of the wheel."""
    window = roll_slots * precision_ms
    # Avoids another roll shortly before the delivery time.
    is_near = due_ms - now_ms - window < roll_slots // 3 * precision_ms
    return now_ms + (roll_slots // 2 * precision_ms if is_near else window)
