"""YAML output without a library: block style, strings quoted where they must be."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./%+@-]*(?: [A-Za-z0-9_./%+@-]+)*")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"}


def yaml_text(value: Any) -> str:
    """A value of JSON's types as a YAML document."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{_scalar(str(key))}:", item, "  ")
    elif isinstance(value, list | tuple) and value:
        for item in value:
            yield from _element(item)
    else:
        yield _scalar(value)


def _entry(head: str, item: Any, indent: str) -> Iterator[str]:
    if _is_block(item):
        yield head
        for line in _lines(item):
            yield indent + line
    else:
        yield f"{head} {_scalar(item)}"


def _element(item: Any) -> Iterator[str]:
    if not _is_block(item):
        yield f"- {_scalar(item)}"
        return
    for number, line in enumerate(_lines(item)):
        yield f"- {line}" if number == 0 else f"  {line}"


def _is_block(item: Any) -> bool:
    return isinstance(item, Mapping | list | tuple) and bool(item)


def _scalar(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
        return value if is_plain else '"' + "".join(map(_escaped, value)) + '"'
    # JSON's other scalars are YAML's.
    return orjson.dumps(value).decode()


def _escaped(char: str) -> str:
    """A character of a quoted string. YAML's escapes are code points, unlike JSON's, which are UTF-16."""
    if char in {'"', "\\"}:
        return f"\\{char}"
    if char == "\n":
        return "\\n"
    return char if char.isprintable() else f"\\U{ord(char):08X}"
