"""Messages as lines of output: for people, as JSON, or by a format string."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from orbitmq.cli.output import for_people, print_json_line, printable, size_text, time_text
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage

MAX_PRINTED_CHARACTERS = 2000
MAX_PRINTED_BYTES = 64
"""Limit of the printed part of a body: characters of a text, bytes of a binary body."""


def message_writer(json: bool, line_format: str | None = None) -> Callable[["ReceivedMessage"], None]:
    """A function that prints a message as one line of JSON or text, or by a format string.

    Raises BadParameter for a malformed format.
    """
    if line_format is None:
        return _as_json if json else _for_people()
    if json:
        raise typer.BadParameter("give --json or --format, not both")
    from orbitmq.cli.message_format import MESSAGE_FIELDS, LineFormat  # noqa: PLC0415

    line = LineFormat(line_format, MESSAGE_FIELDS).line
    return lambda message: _write(line(message))


def _write(text: str) -> None:
    sys.stdout.write(text)


def _as_json(message: "ReceivedMessage") -> None:
    from orbitmq.cli.messages.message_json import line_of  # noqa: PLC0415

    print_json_line(line_of(message))


def _for_people() -> Callable[["ReceivedMessage"], None]:
    console = for_people()
    has_colours = console.is_terminal and console.color_system is not None and not console.no_color

    def paint(text: str, **style: str | bool) -> str:
        # rich is too slow for thousands of messages per second.
        return typer.style(text, **style) if has_colours else text  # type: ignore[arg-type]

    def write(message: "ReceivedMessage") -> None:
        parts = [
            paint(time_text(message.store_timestamp), dim=True),
            paint(f"{printable(message.broker_name)}/{message.queue_id}:{message.queue_offset}", fg="green"),
        ]
        if message.tags:
            parts.append(paint(printable(message.tags), fg="yellow", bold=True))
        parts += [paint(f"#{printable(key)}", fg="cyan") for key in message.keys]
        for name, value in message.properties.items():
            if name not in names.RESERVED:
                parts.append(paint(printable(f"{name}={value}"), dim=True))
        parts.append(_body_text(message))
        sys.stdout.write("  ".join(parts) + "\n")

    return write


def _body_text(message: "ReceivedMessage") -> str:
    """The body on one line, with control characters escaped."""
    try:
        body = message.body
    except ProtocolError as error:
        return f"[{size_text(len(message.record.body))}, malformed: {printable(str(error))}]"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        rest = "…" if len(body) > MAX_PRINTED_BYTES else ""
        return f"[{size_text(len(body))}: {body[:MAX_PRINTED_BYTES].hex()}{rest}]"
    rest = f" … {len(text) - MAX_PRINTED_CHARACTERS} characters more" if len(text) > MAX_PRINTED_CHARACTERS else ""
    return printable(text[:MAX_PRINTED_CHARACTERS]) + rest
