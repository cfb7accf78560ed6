"""Bodies: what an application may pass as body of a message, and JSON in both directions."""

from __future__ import annotations

import sys
from typing import Any, Final

import orjson

from orbitmq.client.errors import BodyError


class _Unset:
    """The type of ``UNSET``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final[Any] = _Unset()
"""Marks an argument that was not given, where None is a value."""


def body_bytes(body: object) -> bytes:
    """The bytes of a body. Raises TypeError for anything but bytes and text: ``bytes(42)`` is 42 zeros."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(
        f"a body is bytes, bytearray, memoryview or str, not {type(body).__name__}: for other values give "
        "json=…, as in Message(topic, json=value), or value=… with a serializer"
    )


def json_bytes(value: object) -> bytes:
    """The JSON of a value. Raises TypeError for one that JSON cannot express.

    Dataclasses, models of pydantic, structs of msgspec, times, UUIDs and enums are values too.
    """
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError as error:
        raise TypeError(f"the value cannot be written as JSON: {error}") from None


def json_value(body: bytes) -> Any:
    """The value of a JSON text. Raises BodyError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BodyError(f"the body is not JSON: {error}") from None


def _plain(value: Any) -> Any:
    """A value of another type as one of JSON. Raises TypeError."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if hasattr(type(value), "__struct_fields__"):
        # A struct of msgspec, which is therefore imported already.
        return sys.modules["msgspec"].to_builtins(value)
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
