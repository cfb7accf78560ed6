"""Conversion of JSON values to columns with the semantics of Spark's from_json."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import decimal
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from orbitmq.spark.body.temporal import days_of, micros_of
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Sequence

_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_NUMBERS = {
    "NaN": "nan",
    "Infinity": "inf",
    "+Infinity": "inf",
    "INF": "inf",
    "+INF": "inf",
    "-Infinity": "-inf",
    "-INF": "-inf",
}
"""What stands for a number that JSON cannot write, as text in quotes."""

_CONTEXT = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)
_NONE = type(None)
_TEXT = frozenset({_NONE, str})


class Real(str):
    """A fractional number as text: a float may lose digits."""

    __slots__ = ()


class DigitsLost(Exception):  # noqa: N818
    """A number was read as a float where its digits are wanted: read the document again, with Real."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The conversion of one column."""

    arrow: pa.DataType
    plain: frozenset[type]
    """The types of values that Arrow takes as they are."""

    convert: Callable[[Any], Any]
    """Everything else but None; raises one of UNFIT."""

    of_text: bool = False
    """Whether Arrow reads the usual forms from text, as ``convert`` does, and fails with the others."""


def column(values: Sequence[Any], reading: Reading) -> pa.Array:
    """The values as a column. Raises one of UNFIT."""
    kinds = set(map(type, values))
    if not kinds <= reading.plain:
        if reading.of_text and kinds <= _TEXT:
            with contextlib.suppress(pa.ArrowInvalid):
                return pa.array(values, pa.string()).cast(reading.arrow)
        convert = reading.convert
        values = [None if value is None else convert(value) for value in values]
    return pa.array(values, reading.arrow)


def reading_of(path: str, arrow: pa.DataType, zone: datetime.tzinfo) -> Reading:
    """The conversion to this type. Raises OptionError if there is none."""
    if pa.types.is_boolean(arrow):
        return Reading(arrow, frozenset({_NONE, bool}), _refusing(path, "a boolean"))
    if pa.types.is_integer(arrow):
        return Reading(arrow, frozenset({_NONE, int}), _refusing(path, "a whole number"))
    if pa.types.is_floating(arrow):
        # Arrow refuses whole numbers that a float cannot hold exactly, so ints are not plain here.
        plain = {_NONE, float} if arrow == pa.float64() else {_NONE}
        return Reading(arrow, frozenset(plain), _floating(path, arrow))
    if pa.types.is_string(arrow):
        return Reading(arrow, frozenset({_NONE, str}), _text)
    if pa.types.is_decimal128(arrow):
        return Reading(arrow, frozenset({_NONE}), _decimal(path, arrow))
    if pa.types.is_date32(arrow):
        return Reading(arrow, frozenset({_NONE}), _of_text(path, "a date", days_of), of_text=True)
    if pa.types.is_timestamp(arrow):
        return Reading(arrow, frozenset({_NONE}), _timestamp(path, zone if arrow.tz else None), of_text=True)
    if pa.types.is_binary(arrow):
        return Reading(arrow, frozenset({_NONE}), _of_text(path, "base64", _bytes))
    if pa.types.is_list(arrow):
        return Reading(
            arrow, frozenset({_NONE}), list_of(path, reading_of(f"{path}.element", arrow.value_type, zone))
        )
    if pa.types.is_map(arrow):
        if not pa.types.is_string(arrow.key_type):
            raise OptionError(f"{path} has keys of type {arrow.key_type}: names in JSON are strings")
        return Reading(arrow, frozenset({_NONE}), map_of(path, reading_of(f"{path}.value", arrow.item_type, zone)))
    if pa.types.is_struct(arrow) and not any(field.metadata for field in arrow):
        parts = {field.name: reading_of(f"{path}.{field.name}", field.type, zone) for field in arrow}
        return Reading(arrow, frozenset({_NONE}), struct_of(path, parts))
    raise OptionError(f"{path} cannot be read from JSON as {arrow}")


def _refusal(path: str, value: Any, what: str) -> ValueError:
    text = str(value) if isinstance(value, Real) else json.dumps(value, ensure_ascii=False)
    return ValueError(f"{path} is not {what}: {text[:100]}")


def _refusing(path: str, what: str) -> Callable[[Any], Any]:
    kind = bool if what == "a boolean" else int

    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise _refusal(path, value, what)

    return convert


def _floating(path: str, arrow: pa.DataType) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        kind = type(value)
        if kind is str:
            value = _NOT_NUMBERS.get(value)
        if value is None or kind not in {float, int, Real, str}:
            raise _refusal(path, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = float("-inf") if value < 0 else float("inf")
        if arrow == pa.float32():
            # Rounded once, from the digits: rounding to double before would choose the other neighbour at times.
            number = pa.scalar(str(value)).cast(arrow).as_py()
        return number

    return convert


def _text(value: Any) -> str:
    """Text as it is; anything else as it is written in JSON, without blanks."""
    if isinstance(value, str):
        return str(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        raise DigitsLost
    if isinstance(value, list):
        return f"[{','.join(map(_inner_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{_quoted(name)}:{_inner_text(part)}' for name, part in value.items())}}}"
    return str(value)


def _inner_text(value: Any) -> str:
    return _quoted(value) if type(value) is str else _text(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _decimal(path: str, arrow: pa.DataType) -> Callable[[Any], decimal.Decimal]:
    unit = decimal.Decimal(1).scaleb(-arrow.scale)
    limit = decimal.Decimal(1).scaleb(arrow.precision - arrow.scale)

    def convert(value: Any) -> decimal.Decimal:
        kind = type(value)
        if kind is float:
            raise DigitsLost
        text = value.replace(",", "") if kind is str else str(value)
        if kind is bool or kind not in {int, Real, str} or not _DECIMAL.fullmatch(text):
            raise _refusal(path, value, f"a {arrow}")
        try:
            number = decimal.Decimal(text).quantize(unit, context=_CONTEXT)
        except ArithmeticError as error:
            raise _refusal(path, value, f"a {arrow}") from error
        if abs(number) >= limit:
            raise _refusal(path, value, f"a {arrow}")
        return number

    return convert


def _of_text(path: str, what: str, read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not str:
            raise _refusal(path, value, what)
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    return convert


def _timestamp(path: str, zone: datetime.tzinfo | None) -> Callable[[Any], int]:
    from_text = _of_text(path, "a timestamp", lambda text: micros_of(text, zone))

    def convert(value: Any) -> int:
        if type(value) is int and zone is not None:
            return value * 1_000_000
        return int(from_text(value))

    return convert


def _bytes(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


def list_of(path: str, element: Reading) -> Callable[[Any], list[Any]]:
    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _refusal(path, value, "an array")
        if set(map(type, value)) <= element.plain:
            return value
        return [None if part is None else element.convert(part) for part in value]

    return convert


def map_of(path: str, item: Reading) -> Callable[[Any], list[tuple[str, Any]]]:
    def convert(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise _refusal(path, value, "an object")
        if set(map(type, value.values())) <= item.plain:
            return list(value.items())
        return [(name, None if part is None else item.convert(part)) for name, part in value.items()]

    return convert


def struct_of(path: str, parts: dict[str, Reading]) -> Callable[[Any], dict[str, Any]]:
    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _refusal(path, value, "an object")
        made = {}
        for name, reading in parts.items():
            part = value.get(name)
            if part is not None:
                made[name] = part if type(part) in reading.plain else reading.convert(part)
        return made

    return convert
