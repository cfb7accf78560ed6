"""JSON as RocketMQ's Java side speaks it: fastjson's habits understood, fastjson's form written.

Reading. ``loads`` tries ``orjson`` and, where that refuses, a tolerant reader for what fastjson 1 and 2
write and take: numbers, words and whole objects as keys, single quotes, type suffixes, comments, trailing
commas, raw control characters, ``{"$ref":"$.path"}``. What comes back:

- an object is a ``dict`` in input order, a repeated key keeping its last value; a number key is an ``int``
  (or ``float``), an object key is an ``ObjectKey``;
- an integer that does not fit 64 bits is a ``float``, as ``orjson`` has it: no Java ``long`` looks like that;
- bytes that are no UTF-8, and surrogates without their other half, are U+FFFD, so that a string read here
  can always be encoded again.

Writing. ``dumps`` writes byte for byte what fastjson 2 writes for the same value, compact or pretty. Entries
whose value is ``None`` are left out, as Java leaves out null properties. A ``tuple`` is a property of type
``long[]``, ``int[]`` or ``List<Long>``, which fastjson keeps on one line even in the pretty form; a ``list``
is any other array, and a ``BlankArray`` an empty one that the pretty form spreads over lines nevertheless.

Not here: what the objects mean. ``protocol.bodies`` turns them into typed values.
"""

from __future__ import annotations

import contextvars
import dataclasses
import decimal
import math
import operator
import re
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from orbitmq.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Scalar: TypeAlias = str | int | float | bool | None

# orjson's own limit, so that a document is taken or refused for its depth no matter which reader meets it.
MAX_DEPTH = 1024

# How many values ``$ref`` may add to a document. fastjson 1 writes references for instances that occur twice;
# a sender that stacks references on references could otherwise make a few bytes stand for billions of values.
MAX_REFERENCED_VALUES = 1_000_000

# Reading a request blocks the event loop of a server, so documents in requests have limits. The tolerant reader
# takes one to two microseconds per token and half of one per escape, so it stays below 20 ms. Plain JSON, which all
# clients send, is fifty times as fast; its limits leave room for a broker that registers 100,000 topics at once.
REQUEST_TOLERANT_BYTES = 524_288
REQUEST_TOKENS = 8_192
REQUEST_ESCAPES = 40_000
REQUEST_REFERENCE_ENTRIES = 32_768
"""Values in a request that has a ``$ref``: finding what it stands for walks through all of them."""
REQUEST_CONTAINERS = 262_144
REQUEST_VALUES = 2_097_152
_COUNTED_FROM = 262_144
"""Bytes; shorter documents are not counted, because they cannot exceed the limits."""

reading_request: contextvars.ContextVar[bool] = contextvars.ContextVar("reading_request", default=False)
"""A request is being decoded, whose handler blocks the event loop of a server."""


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectKey:
    """A JSON object in the place of a map key, as fastjson writes a ``Map<MessageQueue, …>``.

    ``items`` are the properties sorted by name; their values are scalars. Two keys with the same properties
    are equal whatever order they were written in.
    """

    items: tuple[tuple[str, Scalar], ...]

    @classmethod
    def of(cls, properties: dict[Any, Any]) -> ObjectKey:
        for name, value in properties.items():
            if isinstance(name, ObjectKey) or isinstance(value, dict | list):
                raise ProtocolError("an object used as a map key may hold only plain values")
        pairs = ((str(name), value) for name, value in properties.items())
        return cls(tuple(sorted(pairs, key=operator.itemgetter(0))))

    def properties(self) -> dict[str, Scalar]:
        return dict(self.items)


class BlankArray(list[Any]):
    """An empty Java ``Set``, or an empty ``List`` that is a property: pretty fastjson breaks the line inside."""

    __slots__ = ()


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Read one JSON value. Raises ``ProtocolError`` and nothing else."""
    if isinstance(data, memoryview):
        data = data.tobytes()
    is_request = reading_request.get()
    if is_request and len(data) > _COUNTED_FROM:
        _check_plain(data.encode("utf-8", "replace") if isinstance(data, str) else data)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        if is_request and len(data) > REQUEST_TOLERANT_BYTES:
            raise ProtocolError(
                f"{len(data)} bytes that are not plain JSON, at most {REQUEST_TOLERANT_BYTES}; send plain JSON"
            ) from None
        value = _read(data if isinstance(data, str) else data.decode("utf-8", "replace"))
    if ("$ref" in data) if isinstance(data, str) else (b"$ref" in data):
        return _resolve_references(value)
    return value


def _check_plain(data: bytes | bytearray) -> None:
    if data.count(b"[") + data.count(b"{") > REQUEST_CONTAINERS:
        raise ProtocolError(f"more than {REQUEST_CONTAINERS} objects and arrays in the JSON of a request")
    if data.count(b",") > REQUEST_VALUES:
        raise ProtocolError(f"more than {REQUEST_VALUES} values in the JSON of a request")


# --- the tolerant reader ---

# One match per token. The quantifiers are possessive: no token can be matched in two ways, so a long one that
# turns out to be broken is given up after a single pass over it, and a repeated group remembers nothing. Two forms
# are avoided, because Python 3.11.2 (Debian 12) gets them wrong: a possessive exponent, and a repeated group that
# ends in a look-ahead.
_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:
      ([\[\]{}:,])                                                        # 1 punctuation
    | "([^"\\]*+(?:\\.[^"\\]*+)*+)"                                       # 2 string
    | '([^'\\]*+(?:\\.[^'\\]*+)*+)'                                       # 3 string in single quotes
    | ([-+]?[0-9]++)[LSBlsb]?+(?![\w.])                                   # 4 integer
    | ([-+]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?)[FDfd]?+(?![\w.])    # 5 float
    | new[ ]Date\(([-+]?[0-9]++)\)                                        # 6 milliseconds of a date
    | (//[^\n]*+ | /\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/ | (?:Tree)?Set(?=[ ]?\[))   # 7 ignored
    | (-?[^\W\d][\w$]*+ | \$[\w$]*+)                                      # 8 word
    )""",
    re.VERBOSE | re.DOTALL,
)
_PUNCTUATION, _STRING, _QUOTED, _INTEGER, _FLOAT, _DATE, _IGNORED, _WORD = range(1, 9)
_REST = re.compile(r"(?:[ \t\r\n]++|//[^\n]*+|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/)*+")

# The expected token: a key or the end of an object; a value or the end of an array; a value; and so on.
_KEY, _ITEM, _VALUE, _COLON, _COMMA = range(5)

_WORDS: dict[str, Scalar] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {
    **{letter: letter for letter in "\"'\\/"},
    **dict(zip("bfnrtv", "\b\f\n\r\t\v", strict=True)),
    **{str(code): chr(code) for code in range(8)},
}
_SURROGATE = re.compile("[\ud800-\udfff]")


def _read(text: str) -> Any:
    """Read one value with the tolerant grammar. The enclosing containers are in a list, so depth uses no stack."""
    if _SURROGATE.search(text):
        text = _pair_surrogates(text)
    if reading_request.get() and text.count("\\") > REQUEST_ESCAPES:
        raise ProtocolError(f"more than {REQUEST_ESCAPES} escapes in JSON that is not plain")
    enclosing: list[tuple[dict[Any, Any] | list[Any] | None, Any, int]] = []
    holder: dict[Any, Any] | list[Any] | None = None
    key: Any = None
    expected = _VALUE
    value: Any
    for token in _tokens(text):
        kind = token.lastindex
        if kind != _PUNCTUATION:
            value = _scalar(token, kind, expected)
        elif (mark := token[1]) == "," and expected == _COMMA:
            expected = _KEY if type(holder) is dict else _ITEM
            continue
        elif mark == ":" and expected == _COLON:
            expected = _VALUE
            continue
        elif mark in "{[":
            _check_open(token, expected, len(enclosing))
            enclosing.append((holder, key, expected))
            holder, expected = ({}, _KEY) if mark == "{" else ([], _ITEM)
            continue
        else:
            _check_close(token, expected, holder)
            value = holder
            holder, key, expected = enclosing.pop()
            if expected == _KEY:
                value = ObjectKey.of(value)
        if expected == _KEY:
            key = value
            expected = _COLON
        elif holder is None:
            return _whole(value, text, token.end())
        else:
            if type(holder) is dict:
                holder[key] = value
            else:
                holder.append(value)  # type: ignore[union-attr]  # mypy does not narrow on type()
            expected = _COMMA
    raise AssertionError("the tokens of a text end with an error")


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """The tokens of a text, without comments. Raises ProtocolError at its end, or where no token matches."""
    tokens_left = REQUEST_TOKENS if reading_request.get() else -1
    scan = _TOKEN.match
    position = 1 if text.startswith("\ufeff") else 0
    while (token := scan(text, position)) is not None:
        if tokens_left == 0:
            raise ProtocolError(f"more than {REQUEST_TOKENS} tokens in JSON that is not plain; send plain JSON")
        tokens_left -= 1
        position = token.end()
        if token.lastindex != _IGNORED:
            yield token
    raise _unreadable(text, position)


def _scalar(token: re.Match[str], kind: int | None, expected: int) -> Any:
    """The value of a string, number or word, which may also be a key."""
    if expected > _VALUE:
        raise _unexpected(token)
    if kind in (_STRING, _QUOTED):
        text = token[kind]
        return _unescape(text) if "\\" in text else text
    if kind in (_INTEGER, _DATE):
        return _integer(token[kind])
    if kind == _FLOAT:
        return float(token[_FLOAT])
    word = token[_WORD]
    if expected == _KEY:
        return word
    if word not in _WORDS:
        raise _unexpected(token)
    return _WORDS[word]


def _check_open(token: re.Match[str], expected: int, depth: int) -> None:
    if expected > _VALUE or (expected == _KEY and token[1] == "["):
        raise _unexpected(token)
    if depth >= MAX_DEPTH:
        raise ProtocolError(f"JSON nested deeper than {MAX_DEPTH}")


def _check_close(token: re.Match[str], expected: int, holder: object) -> None:
    # A comma or colon that may not stand here gets here too, and fits neither.
    opened = {"}": dict, "]": list}.get(token[1])
    if opened is None or expected in (_VALUE, _COLON) or type(holder) is not opened:
        raise _unexpected(token)


def _whole(value: Any, text: str, end: int) -> Any:
    """The value of a document, if nothing but space and comments follows it."""
    if _REST.match(text, end).end() != len(text):  # type: ignore[union-attr]  # matches ""
        raise _unreadable(text, end)
    return value


def _integer(text: str) -> int | float:
    # Long digit runs never go through int(): it is quadratic, and refuses beyond a few thousand digits.
    if len(text) > 40:
        return float(text)
    value = int(text)
    return value if -(2**63) <= value < 2**64 else float(value)


def _unescape(text: str) -> str:
    text = _ESCAPE.sub(_escaped, text)
    return _pair_surrogates(text) if _SURROGATE.search(text) else text


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code not in _ESCAPED:
        raise ProtocolError(f"no JSON escape: \\{code}")
    return _ESCAPED[code]


def _pair_surrogates(text: str) -> str:
    """Join the halves of a character; a half alone becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unexpected(token: re.Match[str]) -> ProtocolError:
    return _unreadable(token.string, token.start())


def _unreadable(text: str, position: int) -> ProtocolError:
    found = text[position : position + 20]
    return ProtocolError(f"not JSON at character {position}: {found!r}" if found else "JSON ends too early")


# --- references ---

_STEP = re.compile(r"\.((?:[^.\[\\]|\\.)+)|\[([0-9]{1,9})\]|\[(?:\"([^\"]*)\"|'([^']*)')\]", re.DOTALL)


def _resolve_references(root: Any) -> Any:
    """Put the value in the place of every ``{"$ref":"$.path"}``.

    A writer can only refer to what it has finished writing, so a reference to something that encloses it or
    follows it is refused: the result has no cycles. ``size_of`` counts each finished container as if its
    references were copies, which is what a reader that walks the result will meet.
    """
    boxed: Any = [root]
    size_of: dict[int, int] = {}
    added = 0
    entries_left = REQUEST_REFERENCE_ENTRIES if reading_request.get() else -1
    walk: list[tuple[Any, Iterable[tuple[Any, Any]]]] = [(boxed, _entries(boxed))]
    sizes = [1]
    while walk:
        holder, entries = walk[-1]
        for key, child in entries:
            if entries_left == 0:
                raise ProtocolError(f"more than {REQUEST_REFERENCE_ENTRIES} values in JSON with a $ref")
            entries_left -= 1
            if type(child) is not dict and type(child) is not list:
                sizes[-1] += 1
            elif (path := _reference(child)) is not None:
                target = _follow(boxed[0], path)
                size = 1
                if isinstance(target, dict | list):
                    size = size_of.get(id(target), 0)
                    if not size:
                        raise ProtocolError(f"$ref to what is not complete yet: {path[:80]}")
                added += size
                if added > MAX_REFERENCED_VALUES:
                    raise ProtocolError(f"$ref adds more than {MAX_REFERENCED_VALUES} values")
                holder[key] = target
                sizes[-1] += size
            else:
                walk.append((child, _entries(child)))
                sizes.append(1)
                break
        else:
            walk.pop()
            size = size_of[id(holder)] = sizes.pop()
            if sizes:
                sizes[-1] += size
    return boxed[0]


def _entries(container: Any) -> Iterable[tuple[Any, Any]]:
    return iter(list(container.items() if isinstance(container, dict) else enumerate(container)))


def _reference(value: dict[Any, Any] | list[Any]) -> str | None:
    """The path if this is a reference: from the root, or fastjson's words for what encloses it."""
    path = value.get("$ref") if isinstance(value, dict) and len(value) == 1 else None
    return path if isinstance(path, str) and path.startswith(("$", "@", "..")) else None


def _follow(root: Any, path: str) -> Any:
    here, position = root, 1
    if not path.startswith("$"):
        raise ProtocolError(f"$ref to what is not complete yet: {path[:80]}")
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise ProtocolError(f"$ref with an unreadable path: {path[:80]}")
        position = step.end()
        name = step[step.lastindex or 1]
        if step.lastindex == 1:
            name = re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)
        here = _step_into(here, name, path)
    return here


def _step_into(here: Any, name: str, path: str) -> Any:
    number = int(name) if name.isascii() and name.isdigit() and len(name) < 20 else None
    if isinstance(here, dict):
        if name in here:
            return here[name]
        if number in here:
            return here[number]
    elif isinstance(here, list) and number is not None and number < len(here):
        return here[number]
    raise ProtocolError(f"$ref to nothing: {path[:80]}")


# --- writing ---


def dumps(
    value: Any,
    *,
    pretty: bool = False,
    browser_compatible: bool = False,
    sort_maps: bool = False,
    ascii_only: bool = False,
) -> bytes:
    """Write one value as fastjson does.

    ``pretty`` is the form of the files under ``config/``: tabs, one entry a line, no space after the colon.
    ``browser_compatible`` is the form of a route for clients that read only standard JSON, and of the metrics
    files: number keys in quotes, integers that JavaScript cannot hold as strings. ``sort_maps`` puts the entries
    in the order of their keys, as in such a route. ``ascii_only`` escapes every character outside ASCII, as
    fastjson 1 does in the browser compatible form and fastjson 2 does not.

    Raises ``TypeError`` for a value that is no JSON and ``ProtocolError`` for one that is nested too deep.
    """
    writer = _Writer(
        encode_basestring_ascii if ascii_only else encode_basestring,
        pretty=pretty,
        browser_compatible=browser_compatible,
        sort_maps=sort_maps,
    )
    try:
        writer.write(value, "\n")
    except RecursionError:
        raise ProtocolError("a value nested too deep to be written") from None
    # A lone surrogate cannot be encoded; Java writes a question mark for it, and so does "replace".
    return "".join(writer.parts).encode("utf-8", "replace")


class _Writer:
    """Collects the text of one value."""

    __slots__ = ("browser_compatible", "encode", "parts", "pretty", "sort_maps")

    def __init__(
        self, encode: Callable[[str], str], *, pretty: bool, browser_compatible: bool, sort_maps: bool
    ) -> None:
        self.encode = encode
        self.sort_maps = sort_maps
        self.pretty = pretty
        self.browser_compatible = browser_compatible
        self.parts: list[str] = []

    def write(self, value: Any, line: str) -> None:
        """Append ``value``; ``line`` is the line break with the indent of the enclosing container."""
        kind = type(value)
        if kind is str:
            self.parts.append(self.encode(value))
        elif kind is dict:
            self._write_object(value, line)
        elif kind is list or kind is tuple:
            self._write_array(value, line)
        elif value is None or kind is bool or kind is int or kind is float:
            self.parts.append(self._plain(value))
        elif kind is BlankArray and not value:
            self.parts.append(f"[{line}\t{line}]" if self.pretty else "[]")
        elif isinstance(value, str):
            # A member of an enumeration: applications name their topics so.
            self.parts.append(self.encode(str.__str__(value)))
        else:
            raise TypeError(f"{kind.__name__} is no JSON value")

    def _write_object(self, entries: dict[Any, Any], line: str) -> None:
        append = self.parts.append
        if not entries:
            append("{}")
            return
        encode = self.encode
        inner = line + "\t"
        first, further = ("{" + inner, "," + inner) if self.pretty else ("{", ",")
        lead = first
        for key, value in sorted(entries.items(), key=_order) if self.sort_maps else entries.items():
            if value is None:
                continue
            name = encode(key) if type(key) is str else self._key(key, inner)
            kind = type(value)
            if kind is str:
                append(f"{lead}{name}:{encode(value)}")
            elif kind is int:
                append(f"{lead}{name}:{self._plain(value) if self.browser_compatible else value}")
            else:
                append(f"{lead}{name}:")
                self.write(value, inner)
            lead = further
        if lead is first:
            # Every entry is null, and pretty fastjson has already broken the line.
            append(first)
        append(line + "}" if self.pretty else "}")

    def _key(self, key: Any, line: str) -> str:
        if isinstance(key, ObjectKey):
            outer, self.parts = self.parts, []
            self.write(dict(key.items), line)
            text, self.parts = "".join(self.parts), outer
            return text
        if isinstance(key, int | float):
            text = str(key) if type(key) is int else self._plain(key)
            return f'"{text}"' if self.browser_compatible else text
        if isinstance(key, str):
            return self.encode(str.__str__(key))
        raise TypeError(f"{type(key).__name__} is no JSON key")

    def _write_array(self, items: list[Any] | tuple[Any, ...], line: str) -> None:
        append = self.parts.append
        if not items:
            append("[]")
            return
        inner = line + "\t"
        broken = self.pretty and type(items) is list
        append("[")
        between = inner if broken else ""
        for item in items:
            if between:
                append(between)
            between = "," + inner if broken else ","
            self.write(item, inner)
        append(line + "]" if broken else "]")

    def _plain(self, value: Any) -> str:
        if value is None:
            return "null"
        if value is True:
            return "true"
        if value is False:
            return "false"
        if isinstance(value, float):
            return java_double(value)
        if self.browser_compatible and not -(2**53) < value < 2**53:
            return f'"{value}"'
        return str(value)


def _order(entry: tuple[Any, Any]) -> tuple[bool, float, str]:
    """Numbers by size, text as Java compares it: by UTF-16 unit."""
    key = entry[0]
    if isinstance(key, int | float):
        return False, key, ""
    return True, 0, str(key).encode("utf-16-be", "surrogatepass").hex()


def java_double(value: float) -> str:
    """The text of a double as Java and fastjson write it: ``1.0``, ``1.0E-5``; not a number is ``null``."""
    if not math.isfinite(value):
        return "null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        # repr() uses an exponent only below 1e-4 and from 1e16 on.
        return repr(value)
    sign, digits, exponent = decimal.Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits))
    exponent = int(exponent) + len(text) - 1
    return f"{'-' * sign}{text[0]}.{text[1:].rstrip('0') or '0'}E{exponent}"
