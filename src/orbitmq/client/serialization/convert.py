"""Conversion of decoded JSON or Avro values to annotated Python types: standard types and dataclasses."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from orbitmq.client.errors import BodyError

_PLAIN = (str, int, float, bool, bytes)


def converted(value: Any, kind: Any) -> Any:
    """The value as an object of this type. Raises BodyError."""
    if kind is Any or kind is object or kind is inspect.Parameter.empty:
        return value
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return converted(value, typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        return _of_union(value, typing.get_args(kind))
    if kind is None or kind is type(None):
        return _checked(value, type(None))
    if origin is not None:
        return _of_container(value, origin, typing.get_args(kind))
    if dataclasses.is_dataclass(kind):
        return _dataclass(value, kind)
    return _of_class(value, kind)


def _of_union(value: Any, kinds: tuple[Any, ...]) -> Any:
    # The exact type first: 1 stays a number, even if text could be made of it.
    for kind in kinds:
        if kind in (type(value), type(None)) and (kind is not type(None) or value is None):
            return value
    errors = []
    for kind in kinds:
        try:
            return converted(value, kind)
        except BodyError as error:
            errors.append(str(error))
    raise BodyError("; ".join(errors))


def _of_container(value: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    if origin is typing.Literal:
        if value not in arguments:
            raise BodyError(f"{value!r} is not one of {', '.join(map(repr, arguments))}")
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        values = _checked(value, dict)
        return {name: converted(item, arguments[1]) for name, item in values.items()}
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is ...):
        items = _checked(value, list)
        if len(items) != len(arguments):
            raise BodyError(f"{len(arguments)} items are expected, not {len(items)}")
        return tuple(converted(item, kind) for item, kind in zip(items, arguments, strict=True))
    if isinstance(origin, type) and (issubclass(origin, Sequence | set | frozenset)):
        items = [converted(item, arguments[0]) for item in _checked(value, list)]
        return items if origin not in (tuple, set, frozenset) else origin(items)
    raise BodyError(f"values of the type {origin} are not supported: use pydantic or msgspec")


def _dataclass(value: Any, kind: Any) -> Any:
    given = _checked(value, dict)
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    if unknown := given.keys() - fields.keys():
        raise BodyError(f"{kind.__name__} has no field {min(unknown)!r}")
    arguments = {}
    for name, item in given.items():
        try:
            arguments[name] = converted(item, hints[name])
        except BodyError as error:
            raise BodyError(f"{kind.__name__}.{name}: {error}") from None
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise BodyError(f"{kind.__name__}: {error}") from None


def _of_class(value: Any, kind: Any) -> Any:
    if kind in _PLAIN or kind in (dict, list):
        return _checked(value, kind)
    if typing.is_typeddict(kind):
        return _checked(value, dict)
    if kind in (set, tuple, frozenset):
        return kind(_checked(value, list))
    if isinstance(value, kind):
        return value
    try:
        if kind in (datetime.datetime, datetime.date, datetime.time):
            return kind.fromisoformat(_checked(value, str))
        if kind is decimal.Decimal:
            return decimal.Decimal(str(value))
        if kind is uuid.UUID or issubclass(kind, enum.Enum):
            return kind(value)
    except (ValueError, ArithmeticError) as error:
        raise BodyError(f"{value!r} is not a {kind.__name__}: {error}") from None
    raise BodyError(f"values of the type {kind.__name__} are not supported: use a dataclass, pydantic or msgspec")


def _checked(value: Any, kind: Any) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BodyError(f"{_shortened(value)} is not of the type {kind.__name__}")
    return value


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
