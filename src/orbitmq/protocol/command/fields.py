"""Typed header fields: what stands in the ext fields of a command as text, and how to read and write it.

A header is described by a table of its fields, written as text: ``queueId:i!`` is an int32 that must be there,
``committed:b=true`` a boolean with a default, ``a=producerGroup:s!`` a string that travels under a shorter name.
The kinds are ``s`` string, ``i`` int32, ``l`` int64, ``b`` boolean. ``+rpc`` and ``+topic`` stand for the fields
that most requests share.

A field that Java keeps in a primitive is never missing there, it is 0 or false; such fields have that default.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from orbitmq.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

FieldValue: TypeAlias = str | int | bool | None
Kind: TypeAlias = Literal["s", "i", "l", "b"]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# Ext fields that belong to no header: they may come with any request.
ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  # the name of the field, not a token
ONS_CHANNEL = "OnsChannel"
REQUEST_TYPE = "ReqT"
ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"

_SHARED = {
    "+rpc": "ns:s nsd:b bname:s oway:b",
    "+topic": "lo:b ns:s nsd:b bname:s oway:b",
}
_ENTRY = re.compile(r"(?:(\w+)=)?(\w+):([silb])(?:(!)|=(.*))?")


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One header field. ``wire_name`` is its key in the ext fields, ``name`` what everybody calls it."""

    name: str
    wire_name: str
    kind: Kind
    required: bool
    default: FieldValue


FieldTable: TypeAlias = tuple[Field, ...]


def field_table(description: str) -> FieldTable:
    """The fields that a description names."""
    fields: list[Field] = []
    for entry in description.split():
        if entry in _SHARED:
            fields.extend(field_table(_SHARED[entry]))
            continue
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError(f"{entry!r} describes no field")
        wire_name, name, kind, required, default = match.groups()
        field = Field(name, wire_name or name, cast("Kind", kind), required is not None, None)
        if default is not None:
            field = dataclasses.replace(field, default=parse_field(field, default))
        fields.append(field)
    return tuple(fields)


def parse_field(field: Field, text: str) -> str | int | bool:
    """The value that Java reads in this text, or ProtocolError where Java would throw."""
    if field.kind == "s":
        return text
    if field.kind == "b":
        return text.lower() == "true"
    if field.kind == "i":
        return _parse_number(field, text, INT32_MIN, INT32_MAX)
    return _parse_number(field, text, INT64_MIN, INT64_MAX)


def _parse_number(field: Field, text: str, lowest: int, highest: int) -> int:
    # int() alone takes spaces and underscores too, which Java does not.
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if digits.isdecimal() and len(digits) <= 1000:
        value = int(text)
        if lowest <= value <= highest:
            return value
    raise ProtocolError(f"field {field.wire_name}: {text[:40]!r} is not an int{highest.bit_length() + 1}")


def decode_fields(ext_fields: Mapping[str, str], table: FieldTable) -> dict[str, FieldValue]:
    """The typed values of all fields of the table by name; one that is absent has its default.

    Raises ProtocolError naming the field that is missing or cannot be read. Ext fields that the table does not
    know are not looked at.
    """
    values: dict[str, FieldValue] = {}
    for field in table:
        text = ext_fields.get(field.wire_name)
        if text is not None:
            values[field.name] = parse_field(field, text)
        elif field.required:
            raise ProtocolError(f"field {field.wire_name} ({field.name}) is missing")
        else:
            values[field.name] = field.default
    return values


def encode_fields(values: Mapping[str, FieldValue], table: FieldTable) -> dict[str, str]:
    """The ext fields for these values, in the order of the table. What is None is not sent."""
    known = {field.name for field in table}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ProtocolError(f"no such header field: {', '.join(unknown)}")
    ext_fields: dict[str, str] = {}
    for field in table:
        value = values.get(field.name)
        if value is not None:
            ext_fields[field.wire_name] = _format_field(field, value)
        elif field.required:
            raise ProtocolError(f"field {field.wire_name} ({field.name}) is missing")
    return ext_fields


def _format_field(field: Field, value: str | int | bool) -> str:
    if field.kind == "s":
        fits = isinstance(value, str)
    elif field.kind == "b":
        fits = isinstance(value, bool)
        value = "true" if value is True else "false"
    else:
        lowest, highest = (INT32_MIN, INT32_MAX) if field.kind == "i" else (INT64_MIN, INT64_MAX)
        fits = isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest
    if not fits:
        raise ProtocolError(f"field {field.name}: {value!r} is not of kind {field.kind}")
    return str(value)
