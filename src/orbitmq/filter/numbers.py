"""Numbers in property values, read as Java's ``Integer.valueOf``, ``Long.valueOf`` and ``Double.valueOf`` do.

They differ from Python's ``int`` and ``float`` at the edges: Java takes digits of every script but no blanks
around an integer, has a range, knows ``1.5d`` and ``0x1p3``, and no underscores.
"""

from __future__ import annotations

import math
import re
import unicodedata

from orbitmq.filter.errors import FilterEvaluationError

INT_LIMIT = 1 << 31
LONG_LIMIT = 1 << 63

_INTEGER = re.compile(r"[+-]?\d+")
# Java reads digits one UTF-16 unit at a time, so those beyond the first plane are none.
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
# Possessive: digits are not tried again when what follows does not fit, which would be quadratic for a long value.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_WORDS = {
    f"{sign}{word}": -value if sign == "-" else value
    for sign in ("", "+", "-")
    for word, value in (("NaN", math.nan), ("Infinity", math.inf))
}

BLANKS = "".join(map(chr, range(33)))
"""Characters that Java's ``String.trim`` removes."""


def parse_int(text: str) -> int:
    """A 32-bit integer."""
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)
    return _integer(text, INT_LIMIT)


def parse_long(text: str) -> int:
    """A 64-bit integer."""
    if len(text) < 19 and text.isdigit() and text.isascii():
        return int(text)
    return _integer(text, LONG_LIMIT)


def parse_double(text: str) -> float:
    """A double; ``NaN`` and infinities are among them."""
    if text.isdigit() and text.isascii():
        return float(text)
    number = text.strip(BLANKS)
    if _DECIMAL.fullmatch(number):
        return float(number.rstrip("fFdD"))
    if number in _WORDS:
        return _WORDS[number]
    if _HEXADECIMAL.fullmatch(number):
        try:
            return float.fromhex(number.rstrip("fFdD"))
        except OverflowError:
            return -math.inf if number[0] == "-" else math.inf
    raise FilterEvaluationError(f"{text!r} is not a number")


def compare_doubles(left: float, right: float) -> int:
    """``Double.compare``: -0.0 is below 0.0, and NaN equals itself and is above everything else."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    """The order of values for which neither ``<`` nor ``>`` holds."""
    if math.isnan(value):
        return 2
    return int(math.copysign(1, value)) if value == 0 else 0


def _integer(text: str, limit: int) -> int:
    if not _INTEGER.fullmatch(text) or _BEYOND_BMP.search(text):
        raise FilterEvaluationError(f"{text!r} is not an integer")
    digits = text.lstrip("+-")
    if not digits.isascii():
        digits = "".join([str(unicodedata.decimal(digit)) for digit in digits])
    # Any number of leading zeros is fine with Java, while Python refuses to read very long numbers.
    digits = digits.lstrip("0") or "0"
    value = int(digits) if len(digits) < 20 else limit
    if text[0] == "-":
        value = -value if len(digits) < 20 else -limit - 1
    if not -limit <= value < limit:
        raise FilterEvaluationError(f"{text!r} is not in the range of the number it is compared with")
    return value
