"""Settings as typed dataclasses with RocketMQ's keys, read from and written to Java properties text.

A field is the snake_case form of the Java key (``listen_port`` is ``listenPort``), so that the file of a running
cluster loads unchanged and an operator finds each setting under the name of the RocketMQ documentation. The
settings themselves, and which combinations are valid, are defined by the classes that use this module.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import re
import types
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from _typeshed import DataclassInstance

    ConfigT = TypeVar("ConfigT", bound=DataclassInstance)

DefaultT = TypeVar("DefaultT")

Int64: TypeAlias = Annotated[int, 64]
"""A Java ``long``; a plain ``int`` is a Java ``int`` of 32 bits."""

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
MAX_MILLISECONDS = 10 * 366 * 86_400_000
"""Ten years: longer waits overflow timers."""
MAX_SETTINGS_BYTES = 256 * 1024
"""Maximum size of a request that changes settings: all settings are some 30 KiB, and parsing blocks the loop."""
MAX_TEXT = 8192
"""Maximum length of a text value, in characters."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


class ConfigError(Exception):
    """A setting has an invalid value."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One field of a class of settings. ``is_optional``: shown only if its value is not the default."""

    key: str
    name: str
    kind: Any
    is_optional: bool
    default: Any


class Range(NamedTuple):
    """Valid values of a number, both ends included."""

    low: int
    high: int


def setting(default: DefaultT, *, key: str = "", optional: bool = False, secret: bool = False) -> DefaultT:
    """A field whose key is not the Java spelling of its name, or that RocketMQ does not have (``optional``).

    An optional setting with its default is omitted by tools and files, so that an unconfigured broker shows exactly
    the settings of RocketMQ. A secret one is left out of ``repr``.
    """
    metadata = {"key": key, "optional": optional}
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def java_key(field_name: str) -> str:
    """The Java spelling of a field's name."""
    head, *rest = field_name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@functools.cache
def settings_of(kind: type[DataclassInstance]) -> Mapping[str, Setting]:
    """The settings of a class by key, sorted."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in dataclasses.fields(kind):
        key = field.metadata.get("key") or java_key(field.name)
        is_optional = field.metadata.get("optional", False)
        found[key] = Setting(key, field.name, hints[field.name], is_optional, field.default)
    return types.MappingProxyType(dict(sorted(found.items())))


# From text to values


def from_settings(kind: type[ConfigT], settings: Mapping[str, str], **overrides: Any) -> tuple[ConfigT, list[str]]:
    """Build a config from Java keys. Returns it and the keys that are unknown. Raises ConfigError."""
    unknown = [key for key in settings if key not in settings_of(kind)]
    return kind(**{**_values(kind, settings), **overrides}), unknown


def changed(config: ConfigT, settings: Mapping[str, str]) -> ConfigT:
    """A copy with some values changed. Unknown keys are ignored. Raises ConfigError."""
    return dataclasses.replace(config, **_values(type(config), settings))


def changed_running(config: ConfigT, settings: Mapping[str, str], fixed: Iterable[str], server: str) -> ConfigT:
    """``changed`` for a server that runs: the settings ``fixed`` keep their values. Raises ConfigError."""
    now = texts_of(config)
    for key in fixed:
        if settings.get(key, now[key]) != now[key]:
            raise ConfigError(
                f"{key} cannot be changed while the {server} runs: stop it, set {key} in its settings file, "
                "and start it again"
            )
    return changed(config, settings)


def check_values(config: DataclassInstance, ranges: Mapping[str, Range]) -> None:
    """Raise ConfigError for a number out of range or a text that is too long. Ranges are given by field name."""
    for key, one in settings_of(type(config)).items():
        value = getattr(config, one.name)
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise ConfigError(f"{key} has {len(value)} characters; at most {MAX_TEXT} are allowed")
        allowed = ranges.get(one.name)
        if allowed is not None and not allowed.low <= value <= allowed.high:
            raise ConfigError(f"{key}={value}: a number from {allowed.low} to {allowed.high} is expected")


def differing(config: DataclassInstance, keys: Iterable[str]) -> list[str]:
    """The keys whose value is not the default."""
    known, defaults = settings_of(type(config)), {one.name: one.default for one in dataclasses.fields(config)}
    return [key for key in keys if key in known and getattr(config, known[key].name) != defaults[known[key].name]]


def become(config: ConfigT, other: ConfigT) -> None:
    """Replace all values by those of another config, for all holders of this object."""
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
    """The values by key, as text; optional ones with their default are omitted."""
    values = [(one, getattr(config, one.name)) for one in settings_of(type(config)).values()]
    return {one.key: _text(value) for one, value in values if not (one.is_optional and value == one.default)}


def as_properties(texts: Mapping[str, str]) -> str:
    """Lines of ``key=value``, sorted by key."""
    return "".join(f"{_escaped(key, _IN_KEYS)}={_escaped(text)}\n" for key, text in sorted(texts.items()))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, enum.Enum) else str(value)


_IN_KEYS = re.compile(r"[\x00-\x1f\\\s=:#!]")
_IN_VALUES = re.compile(r"[\x00-\x1f\\]|^\s|\s$")
"""Characters with a special meaning in a file, such as blanks around a value."""


def _escaped(text: str, special: re.Pattern[str] = _IN_VALUES) -> str:
    """Text as written to a properties file; almost always unchanged."""
    return special.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


# Java properties files

_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_conf(text: str) -> dict[str, str]:
    """Parse a Java properties file as Java does, except that trailing blanks of a value are dropped."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        entry = _ENTRY.match(line)
        assert entry is not None, "every part of the pattern may be empty"
        settings[_unescape(entry[1])] = _unescape(entry[2].rstrip())
    return settings


def settings_text(body: bytes | memoryview) -> str:
    """Decode a request that changes settings. Raises ConfigError if it is longer than all settings can be."""
    if len(body) > MAX_SETTINGS_BYTES:
        raise ConfigError(f"the settings have {len(body)} bytes; at most {MAX_SETTINGS_BYTES} are allowed")
    return str(body, "utf-8", "replace")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; one that ends with a backslash continues on the next."""
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
        raise ConfigError(f"\\{code} is not a character: four hexadecimal digits follow \\u")
    return chr(int(code[1:], 16))
