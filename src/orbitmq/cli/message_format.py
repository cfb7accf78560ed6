"""Format strings of the command line: ``--format '{queue}:{offset} {body}'``.

A ``LineFormat`` knows no messages: it is given a table of fields, each a function of what is printed, so that
``tail`` prints messages with it and other commands print topics or groups. ``MESSAGE_FIELDS`` is the table of
messages.
"""

from __future__ import annotations

import base64
import string
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from orbitmq.cli.output import time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.client.message import ReceivedMessage

T = TypeVar("T")

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class LineFormat(Generic[T]):
    """A format string: text with fields in braces, as in Python's ``str.format``.

    ``{field}`` prints a field, ``{field:>10}`` aligns it, ``{properties[name]}`` prints one entry of a mapping,
    ``{{`` and ``}}`` are braces; ``\\n``, ``\\t``, ``\\r``, ``\\0`` and ``\\\\`` are escapes. A line ends with a
    newline unless the format ends with an escape.
    """

    def __init__(self, text: str, fields: Mapping[str, Callable[[T], Any]]) -> None:
        """Raises BadParameter for a field that is not in the table, and for a malformed format."""
        self._parts: list[tuple[str, Callable[[T], Any] | None, tuple[str, ...], str]] = []
        try:
            for literal, name, spec, conversion in string.Formatter().parse(text):
                if conversion:
                    _refuse(text, f"conversions such as !{conversion} are not supported")
                self._add(text, _unescaped(literal), name, spec or "", fields)
        except ValueError as error:
            _refuse(text, str(error))
        if not text.endswith(("\\n", "\\0", "\\r", "\\t")):
            self._parts.append(("\n", None, (), ""))

    def _add(
        self, text: str, literal: str, name: str | None, spec: str, fields: Mapping[str, Callable[[T], Any]]
    ) -> None:
        if name is None:
            self._parts.append((literal, None, (), ""))
            return
        field, *path = name.replace("]", "").split("[")
        get = fields.get(field)
        if get is None:
            _refuse(text, f"unknown field {field!r}; the fields are {', '.join(sorted(fields))}")
        format("", spec)
        self._parts.append((literal, get, tuple(path), spec))

    def line(self, row: T) -> str:
        """The text of one row, with its newline."""
        parts = []
        for literal, get, path, spec in self._parts:
            parts.append(literal)
            if get is not None:
                parts.append(format(_text(_entry(get(row), path)), spec))
        return "".join(parts)


def _entry(value: Any, path: tuple[str, ...]) -> Any:
    """The entry of nested mappings and lists; None where there is none."""
    for name in path:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict | list | bool):
        import orjson  # noqa: PLC0415

        return orjson.dumps(value).decode()
    return str(value)


def _unescaped(text: str) -> str:
    parts = iter(text)
    out = []
    for char in parts:
        if char != "\\":
            out.append(char)
            continue
        escape = next(parts, None)
        if escape not in _ESCAPES:
            raise ValueError(f"unknown escape \\{escape or ''}")
        out.append(_ESCAPES[escape])
    return "".join(out)


def _refuse(text: str, why: str) -> NoReturn:
    from typer import BadParameter  # noqa: PLC0415 - not imported by servers

    raise BadParameter(f"--format {text!r}: {why}")


# Messages


def _json(message: ReceivedMessage) -> Any:
    """The body as JSON; None if it is something else."""
    try:
        return message.json()
    except ValueError:
        return None


MESSAGE_FIELDS: dict[str, Callable[[ReceivedMessage], Any]] = {
    "topic": lambda message: message.topic,
    "broker": lambda message: message.broker_name,
    "queue": lambda message: message.queue_id,
    "offset": lambda message: message.queue_offset,
    "id": lambda message: message.message_id,
    "offset_id": lambda message: message.offset_message_id,
    "tags": lambda message: message.tags,
    "keys": lambda message: " ".join(message.keys),
    "properties": lambda message: message.properties,
    "body": lambda message: message.body,
    "body_hex": lambda message: message.body.hex(),
    "body_base64": lambda message: base64.b64encode(message.body).decode(),
    "json": _json,
    "size": lambda message: len(message.body),
    "time": lambda message: time_text(message.store_timestamp),
    "store_timestamp": lambda message: message.store_timestamp,
    "born_time": lambda message: time_text(message.born_timestamp),
    "born_timestamp": lambda message: message.born_timestamp,
    "born_host": lambda message: message.born_host,
    "retries": lambda message: message.reconsume_times,
}
"""Fields of ``orbitmq tail --format``."""
