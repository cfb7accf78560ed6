"""Settings as typed dataclasses with RocketMQ's keys, and the Java properties text they come from and go to.

A field is the snake_case form of the Java key (``listen_port`` is ``listenPort``), so that the file of a running
cluster loads as it is and an operator finds the knob under the name that the RocketMQ documentation uses. Which
settings there are, and which values make sense together, belongs to whoever has them.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import re
import types
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from _typeshed import DataclassInstance

    ConfigT = TypeVar("ConfigT", bound=DataclassInstance)

DefaultT = TypeVar("DefaultT")

Int64: TypeAlias = Annotated[int, 64]
"""A number that Java keeps in a ``long``; a plain ``int`` is one of 32 bits there, and so it is here."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


class ConfigError(Exception):
    """A setting has a value it cannot have."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One field of a class of settings. ``is_optional``: empty means not set, and it is shown only if it is."""

    key: str
    name: str
    kind: Any
    is_optional: bool


def setting(default: DefaultT, *, key: str = "", optional: bool = False) -> DefaultT:
    """A field whose key is not the Java spelling of its name, or that may be not set."""
    metadata = {"key": key, "optional": optional}
    return dataclasses.field(default=default, metadata=metadata)


def java_key(field_name: str) -> str:
    """The Java spelling of a field's name."""
    head, *rest = field_name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@functools.cache
def settings_of(kind: type[DataclassInstance]) -> Mapping[str, Setting]:
    """The settings of a class by their keys, in the order of the keys."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in dataclasses.fields(kind):
        key = field.metadata.get("key") or java_key(field.name)
        found[key] = Setting(key, field.name, hints[field.name], field.metadata.get("optional", False))
    return types.MappingProxyType(dict(sorted(found.items())))


# From text to values


def from_settings(kind: type[ConfigT], settings: Mapping[str, str], **overrides: Any) -> tuple[ConfigT, list[str]]:
    """Build a config from Java keys. Returns it and the keys that are none of its own. Raises ConfigError."""
    unknown = [key for key in settings if key not in settings_of(kind)]
    return kind(**{**_values(kind, settings), **overrides}), unknown


def changed(config: ConfigT, settings: Mapping[str, str]) -> ConfigT:
    """The same with some other values. Keys that are none of its own are passed over. Raises ConfigError."""
    return dataclasses.replace(config, **_values(type(config), settings))


def become(config: ConfigT, other: ConfigT) -> None:
    """Take over all values of another one, for everybody who has this one."""
    for one in settings_of(type(config)).values():
        setattr(config, one.name, getattr(other, one.name))


def _values(kind: type[DataclassInstance], settings: Mapping[str, str]) -> dict[str, Any]:
    known = settings_of(kind)
    return {known[key].name: _typed(known[key], text) for key, text in settings.items() if key in known}


def _typed(one: Setting, text: str) -> object:
    kind = one.kind
    if kind is str:
        return text
    if kind is bool:
        if text.lower() not in {"true", "false"}:
            raise ConfigError(f"{one.key}={text}: true or false is expected")
        return text.lower() == "true"
    if kind is float:
        return _number(one.key, text)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if text not in kind.__members__:
            *others, last = kind.__members__
            raise ConfigError(f"{one.key}={text}: {', '.join(others)} or {last} is expected")
        return kind[text]
    bits = 64 if kind == Int64 else 32
    if not _WHOLE.fullmatch(text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise ConfigError(f"{one.key}={text}: a whole number is expected, of {bits} bits")
    return int(text)


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{key}={text}: a number is expected")
    return value


# From values to text


def texts_of(config: DataclassInstance) -> dict[str, str]:
    """The values by their keys, as text; those that are not set are left out."""
    texts = {key: _text(getattr(config, one.name)) for key, one in settings_of(type(config)).items()}
    return {key: text for key, text in texts.items() if text or not settings_of(type(config))[key].is_optional}


def as_properties(texts: Mapping[str, str]) -> str:
    """``key=value`` and a line each, in the order of the keys."""
    return "".join(f"{_escaped(key, _IN_KEYS)}={_escaped(text)}\n" for key, text in sorted(texts.items()))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, enum.Enum) else str(value)


_IN_KEYS = re.compile(r"[\x00-\x1f\\\s=:#!]")
_IN_VALUES = re.compile(r"[\x00-\x1f\\]|^\s|\s$")
"""What means something else in a file: blanks around a value, for one."""


def _escaped(text: str, special: re.Pattern[str] = _IN_VALUES) -> str:
    """Text as it stands in a properties file; almost always just itself."""
    return special.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


# Java properties files

_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_conf(text: str) -> dict[str, str]:
    """Read a Java properties file as Java does, except that blanks at the end of a value are dropped."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        entry = _ENTRY.match(line)
        assert entry is not None, "every part of the pattern may be empty"
        settings[_unescape(entry[1])] = _unescape(entry[2].rstrip())
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    """Lines that are no comments; one that ends with a backslash goes on in the next."""
    pending: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        pending = None
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
        else:
            yield line
    if pending:
        yield pending


def _unescape(text: str) -> str:
    text = _ESCAPE.sub(_unescaped, text)
    try:
        # Java escapes a character beyond 16 bits as two halves.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ConfigError(f"{text!r} is not text: it is expected in UTF-8") from None


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] != "u":
        return _ESCAPED.get(code, code)
    if not re.fullmatch("u[0-9a-fA-F]{4}", code):
        raise ConfigError(f"\\{code} is no character: four hexadecimal digits follow \\u")
    return chr(int(code[1:], 16))
