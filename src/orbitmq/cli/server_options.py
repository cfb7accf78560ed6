"""Options of the verbs that run servers, which are read from a plain command line without Typer.

Typer and what it is built on take as long to load as a server does. So a verb says here what its options are; Typer
is told the same when there is anything to show or to refuse, and it has the last word on what is not plain.
"""

import dataclasses
import enum
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Annotated, Any

_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclasses.dataclass(frozen=True, slots=True)
class ServerOption:
    """An option: its names, or none if the parameter's is meant, and what else ``typer.Option`` is told."""

    names: tuple[str, ...]
    more: Mapping[str, Any]


def option(*names: str, **more: Any) -> ServerOption:
    """An option of a verb, to be annotated as ``typer.Option`` is."""
    return ServerOption(names, MappingProxyType(more))


def for_typer(action: Callable[..., None]) -> Callable[..., None]:
    """The same verb with options that Typer understands; one that has none of these is itself."""
    from typer import Option  # noqa: PLC0415 - not for servers

    hints = typing.get_type_hints(action, include_extras=True)
    options = {name: (kind, said) for name, kind, said in _options(hints)}
    if not options:
        return action

    @functools.wraps(action)
    def run(**arguments: Any) -> None:
        action(**arguments)

    for name, (kind, said) in options.items():
        hints[name] = Annotated[kind, Option(*said.names, **said.more)]
    signature = inspect.signature(action)
    run.__annotations__ = hints
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # inspect and Typer look for it
        parameters=[one.replace(annotation=hints[one.name]) for one in signature.parameters.values()]
    )
    return run


def plain_arguments(action: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """What a command line says to a verb; None if it is for Typer: help, anything wrong, or said in a rarer way."""
    known = {
        written: (name, kind, said)
        for name, kind, said in _options(typing.get_type_hints(action, include_extras=True))
        for written in (said.names or ("--" + name.replace("_", "-"),))
    }
    arguments: dict[str, Any] = {}
    left = list(reversed(words))
    while left:
        written, is_joined, text = left.pop().partition("=")
        name, kind, said = known.get(written, ("", None, None))
        if said is None or name in arguments or (is_joined and not written.startswith("--")):
            return None
        if kind is bool:
            # Without a name of its own it would have a second one that says no.
            value: Any = True if said.names and not is_joined else None
        elif is_joined or left:
            value = _value(kind, text if is_joined else left.pop(), said.more)
        else:
            return None
        if value is None:
            return None
        arguments[name] = value
    return arguments


def _options(hints: Mapping[str, Any]) -> list[tuple[str, Any, ServerOption]]:
    found = []
    for name, hint in hints.items():
        if typing.get_origin(hint) is Annotated:
            kind, said = typing.get_args(hint)
            if isinstance(said, ServerOption):
                found.append((name, kind, said))
    return found


def _value(kind: Any, text: str, more: Mapping[str, Any]) -> object:
    """What a word means; None if that is not plain."""
    (kind,) = [part for part in typing.get_args(kind) if part is not NoneType] or [kind]
    if not text or text.startswith("-"):
        return None
    if kind is int:
        if not _NUMBER.fullmatch(text) or not more["min"] <= int(text) <= more["max"]:
            return None
        return int(text)
    if kind is Path:
        return Path(text)
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return kind(text) if text in [one.value for one in kind] else None
    return text if kind is str else None
