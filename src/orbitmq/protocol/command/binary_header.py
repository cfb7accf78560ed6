"""The binary header, which RocketMQ calls ROCKETMQ.

====  ==========================================================================
size  field
====  ==========================================================================
2     code
1     language
2     version
4     opaque
4     flag
4, n  remark: length and bytes; length 0 is no remark
4, n  extension fields: length in bytes, then per field a two-byte key length, the key, a four-byte
      value length, the value, until the length is used up
====  ==========================================================================

A key or a value of length 0 reads as null in Java, so such a field is absent here. Of a key that comes twice the
last value counts. Java does not notice bytes after the last field and reads the body from there; such a header
is refused here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command.header import LANGUAGES_BY_CODE
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import decode_utf8

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header

_FIXED = struct.Struct(">hBhiiI")
_INT = struct.Struct(">I")
_LETTER_FIELD = struct.Struct(">HBI")
"""Key size, key and value size of a field whose key is one letter, as those of sends are."""
_MIN_SIZE = _FIXED.size + 4


def decode_binary_header(header: bytes) -> Header:
    """Read a binary header. Bytes that are not UTF-8 become replacement characters, as in Java."""
    size = len(header)
    if size < _MIN_SIZE:
        raise ProtocolError(f"{size} bytes are too few for a binary header")
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
    remark_end = _FIXED.size + remark_size
    if remark_end + 4 > size:
        raise ProtocolError(f"remark of {remark_size} bytes in a header of {size}")
    (fields_size,) = _INT.unpack_from(header, remark_end)
    if remark_end + 4 + fields_size != size:
        raise ProtocolError(f"fields of {fields_size} bytes do not end with the header of {size}")
    return (
        code,
        opaque,
        flag,
        version,
        LANGUAGES_BY_CODE.get(language, LanguageCode.OTHER),
        decode_utf8(header[_FIXED.size : remark_end]) if remark_size else None,
        _decode_fields(header, remark_end + 4) if fields_size else {},
    )


def _decode_fields(header: bytes, at: int) -> dict[str, str]:
    if header[at:].isascii():
        fields = _decode_ascii_fields(header, at)
        if fields is not None:
            return fields
    fields = {}
    size = len(header)
    value_size_of = _INT.unpack_from
    # One character per byte: slices of it are the text already where that is ASCII, as nearly all of it is.
    # This takes two thirds of the time of decoding each key and value by itself.
    text = str(header, "latin-1")
    try:
        while at < size:
            key_end = at + 2 + (header[at] << 8 | header[at + 1])
            (value_size,) = value_size_of(header, key_end)
            key = text[at + 2 : key_end]
            at = key_end + 4 + value_size
            value = text[key_end + 4 : at]
            if not value.isascii():
                value = _decode_latin(value)
            if value and key:
                fields[key] = value
    except (IndexError, struct.error):
        raise ProtocolError("a field key crosses the end of its header") from None
    if at > size:
        raise ProtocolError(f"a field value crosses the end of its header by {at - size} bytes")
    if not "".join(fields).isascii():
        return {_decode_latin(key): value for key, value in fields.items()}
    return fields


def _decode_ascii_fields(header: bytes, at: int) -> dict[str, str] | None:
    """The usual case: nothing but ASCII, sizes included. None if there is something unusual after all."""
    fields: dict[str, str] = {}
    size = len(header)
    text = str(header, "latin-1")
    unpack = _LETTER_FIELD.unpack_from
    value_size_of = _INT.unpack_from
    try:
        while at < size:
            key_size, _, value_size = unpack(header, at)
            if key_size == 1:
                key = text[at + 2]
                value_at = at + 7
            else:
                key_end = at + 2 + key_size
                key = text[at + 2 : key_end]
                value_at = key_end + 4
                (value_size,) = value_size_of(header, key_end)
            at = value_at + value_size
            value = text[value_at:at]
            if value and key:
                fields[key] = value
    except struct.error:
        return None
    return fields if at == size else None


def _decode_latin(text: str) -> str:
    return decode_utf8(text.encode("latin-1"))


def encode_binary_header(header: Header) -> bytes:
    """Write a binary header, the fields in their order in the dict."""
    code, opaque, flag, version, language, remark, fields = header
    remark_bytes = encode_text(remark) if remark else b""
    parts = []
    for name, value in fields.items():
        key = encode_text(name)
        data = encode_text(value)
        if len(key) > 0x7FFF:
            raise ProtocolError(f"field name of {len(key)} bytes does not fit a binary header")
        parts.append(len(key).to_bytes(2, "big") + key + len(data).to_bytes(4, "big") + data)
    field_bytes = b"".join(parts)
    try:
        fixed = _FIXED.pack(code, language, version, opaque, flag, len(remark_bytes))
    except struct.error as error:
        raise ProtocolError(
            f"code {code}, version {version}, opaque {opaque} or flag {flag} does not fit a binary header"
        ) from error
    return b"".join((fixed, remark_bytes, _INT.pack(len(field_bytes)), field_bytes))


def encode_text(text: str) -> bytes:
    """UTF-8 as Java writes it: half a character that stands alone is a question mark."""
    return text.encode("utf-8", "replace")
