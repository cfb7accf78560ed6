"""The JSON header: read with all that fastjson lets pass, written as Java writes it.

What peers really send: Java and Go quote every field value, the Node client sends numbers and booleans, the C++
client empty remarks. fastjson turns them all into text, and so does this reader. Headers that are not even JSON
(unquoted or single-quoted keys, trailing commas, number suffixes) go through the tolerant reader.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command.header import LANGUAGES_BY_CODE, LANGUAGES_BY_NAME
from orbitmq.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header

_WRITTEN = b'{"code":%d%b,"flag":%d,"language":"%b","opaque":%d%b,"serializeTypeCurrentRPC":"JSON","version":%d}'

_INT32_MIN = -(2**31)
_INT32_MAX = 2**31 - 1


class _Literal(str):
    """A number with a fraction as it was written: fastjson keeps ``1.50``, a float does not."""

    __slots__ = ()


def decode_json_header(header: bytes) -> Header:
    """Read a JSON header.

    A missing or null number is 0. Java invents an opaque where there is none; no peer could match such an
    answer, so 0 does as well.
    """
    document = _load(header)
    if not isinstance(document, dict):
        raise ProtocolError("a JSON header must be an object")
    fields = document.get("extFields")
    if fields is None:
        fields = {}
    elif not isinstance(fields, dict):
        raise ProtocolError("extFields must be an object")
    remark = document.get("remark")
    return (
        _number(document, "code"),
        _number(document, "opaque"),
        _number(document, "flag"),
        _number(document, "version"),
        _language(document.get("language", "JAVA")),
        None if remark is None else _text(remark),
        {_name(name): _text(value) for name, value in fields.items() if value is not None},
    )


def _load(header: bytes) -> Any:
    try:
        document = orjson.loads(header)
    except orjson.JSONDecodeError:
        # Imported here: only peers with fastjson's habits need it.
        from orbitmq.protocol.fastjson import loads  # noqa: PLC0415

        return loads(header)
    return _load_literally(header, document) if _holds_fractions(document) else document


def _holds_fractions(document: Any) -> bool:
    """True if a value that has to become text is a float: a fraction, or an integer beyond 64 bits."""
    if not isinstance(document, dict):
        return False
    fields = document.get("extFields")
    values = fields.values() if isinstance(fields, dict) else ()
    return isinstance(document.get("remark"), float) or any(isinstance(value, float) for value in values)


def _load_literally(header: bytes, document: Any) -> Any:
    """The same document with its fractions as they were written and its integers in full, but not inside values."""
    try:
        literal = json.loads(str(header, "utf-8"), parse_float=_Literal)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a JSON header: {error}") from error
    fields = literal.get("extFields")
    if isinstance(fields, dict):
        for name, value in fields.items():
            if isinstance(value, list | dict):
                fields[name] = document["extFields"][name]
    if isinstance(literal.get("remark"), list | dict):
        literal["remark"] = document["remark"]
    return literal


def _number(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    if type(value) is not int:
        value = _number_from(name, value)
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise ProtocolError(f"{name} {value} is not a 32-bit number")
    return value


def _number_from(name: str, value: object) -> int:
    """Value that fastjson makes of something else in the place of an int."""
    if value is None:
        return 0
    try:
        if isinstance(value, _Literal):
            return int(float(value))
        if isinstance(value, bool | float):
            return int(value)
        if isinstance(value, str) and value.isascii():
            if value in {"", "null"}:
                return 0
            whole, _, fraction = value.partition(".")
            digits = whole[1:] if whole[:1] in {"+", "-"} else whole
            if digits.isdigit() and (not fraction or fraction.isdigit()):
                return int(whole)
    except (ValueError, OverflowError):
        pass
    raise ProtocolError(f"{name} is not a number")


def _language(value: object) -> LanguageCode:
    if isinstance(value, str):
        name = value.upper()
        if name in LANGUAGES_BY_NAME:
            return LANGUAGES_BY_NAME[name]
        value = int(name) if name.isascii() and name.isdigit() and len(name) < 4 else None
    if isinstance(value, int) and not isinstance(value, bool):
        return LANGUAGES_BY_CODE.get(value, LanguageCode.OTHER)
    return LanguageCode.OTHER


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise ProtocolError("the names in extFields must be strings")
    return name


def _text(value: object) -> str:
    """A value of any JSON type as the text that fastjson turns it into."""
    if type(value) is str:
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    from orbitmq.protocol.fastjson import dumps, java_double  # noqa: PLC0415

    if isinstance(value, _Literal):
        if "e" in value or "E" in value:
            return java_double(float(value))
        return value.removeprefix("-") if not value.strip("-0.") else str(value)
    if isinstance(value, float):
        return java_double(value)
    return str(dumps(value), "utf-8")


def encode_json_header(header: Header) -> bytes:
    """Write a JSON header as Java does: compact, keys in alphabetical order, nothing that is null.

    Field values are always strings, which the C++ client insists on. Without fields there is no ``extFields``
    at all, as in Java's answers without a header object.
    """
    code, opaque, flag, version, language, remark, fields = header
    return _WRITTEN % (
        code,
        b',"extFields":' + _json(fields) if fields else b"",
        flag,
        language.name.encode(),
        opaque,
        b"" if remark is None else b',"remark":' + _json(remark),
        version,
    )


def _json(value: str | dict[str, str]) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise ProtocolError(f"not a JSON header value: {error}") from error
