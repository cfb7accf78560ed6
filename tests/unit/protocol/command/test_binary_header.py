"""Binary headers: the layout, and what does not keep to it."""

from __future__ import annotations

import struct

import pytest

from orbitmq.protocol.codes import LanguageCode, RequestCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.protocol.errors import ProtocolError


def field(key: bytes, value: bytes) -> bytes:
    return struct.pack(">H", len(key)) + key + struct.pack(">I", len(value)) + value


def header(remark: bytes = b"", fields: bytes = b"", *, language: int = 0) -> bytes:
    fixed = struct.pack(">hBhiiI", 10, language, 513, 7, 0, len(remark))
    return fixed + remark + struct.pack(">I", len(fields)) + fields


def decode(data: bytes) -> Command:
    return Command.decode((1, data, b""))


EXAMPLE = bytes.fromhex(
    "0000 00 0000 00000000 00000001 00000010 e4b8ade69687225c2f01e280a83c3e26 00000008 0001 6b 00000001 76"
)


def test_a_header_of_a_java_peer_is_read_and_written_again() -> None:
    command = decode(EXAMPLE)

    assert command == Command(
        code=0,
        flag=1,
        remark='中文"\\/\x01\u2028<>&',
        ext_fields={"k": "v"},
        version=0,
        serialize_type=SerializeType.ROCKETMQ,
    )
    assert FrameParser().feed(command.encode()) == [(1, EXAMPLE, b"")]


def test_the_smallest_header_has_neither_remark_nor_fields() -> None:
    command = decode(header())

    assert (command.code, command.version, command.opaque) == (10, 513, 7)
    assert command.remark is None
    assert command.ext_fields == {}


def test_of_a_repeated_key_the_last_value_counts() -> None:
    assert decode(header(fields=field(b"a", b"1") + field(b"b", b"2") + field(b"a", b"3"))).ext_fields == {
        "a": "3",
        "b": "2",
    }


def test_an_empty_key_or_value_is_no_field() -> None:
    assert decode(header(fields=field(b"", b"1") + field(b"b", b"") + field(b"c", b"3"))).ext_fields == {"c": "3"}


def test_an_empty_value_is_written_as_java_writes_it() -> None:
    command = Command(code=1, ext_fields={"a": "", "b": "2"}, serialize_type=SerializeType.ROCKETMQ)

    (frame,) = FrameParser().feed(command.encode())

    assert frame[1].endswith(field(b"a", b"") + field(b"b", b"2"))
    assert Command.decode(frame).ext_fields == {"b": "2"}


def test_keys_and_values_beyond_ascii_are_utf_8() -> None:
    fields = field("ключ".encode(), "значение".encode()) + field(b"long", "é".encode() * 400)

    assert decode(header(fields=fields)).ext_fields == {"ключ": "значение", "long": "é" * 400}


def test_bytes_that_are_not_utf_8_read_as_replacement_characters() -> None:
    command = decode(header(b"\xff", field(b"\xfe", b"a\xed\xa0\x80b")))

    assert command.remark == "�"
    assert command.ext_fields == {"�": "a�b"}


def test_an_unknown_language_is_other() -> None:
    assert decode(header(language=200)).language is LanguageCode.OTHER
    assert decode(header(language=9)).language is LanguageCode.GO


@pytest.mark.parametrize("size", range(21))
def test_too_few_bytes_are_no_header(size: int) -> None:
    with pytest.raises(ProtocolError, match="too few"):
        decode(header()[:size])


WHOLE = header(b"remark", field(b"key", b"value"))


@pytest.mark.parametrize("size", range(21, len(WHOLE)))
def test_a_header_cut_short_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        decode(WHOLE[:size])


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (WHOLE + b"\0", "do not end with the header"),
        (header()[:13] + b"\xff\xff\xff\xff" + header()[17:], "remark of 4294967295 bytes"),
        (header()[:17] + b"\xff\xff\xff\xff", "fields of 4294967295 bytes"),
        (header(fields=b"\0"), "key crosses"),
        (header(fields=b"\0\1a"), "key crosses"),
        (header(fields=b"\xff\xffa\0\0\0\0"), "key crosses"),
        (header(fields=b"\0\1a\0\0\0\1"), "value crosses the end of its header by 1"),
        (header(fields=b"\0\1a\xff\xff\xff\xff"), "value crosses"),
    ],
)
def test_lengths_that_lead_outside_are_refused(damaged: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        decode(damaged)


@pytest.mark.parametrize(
    "command",
    [
        Command(code=RequestCode.POP_MESSAGE),
        Command(code=32768),
        Command(code=-32769),
        Command(code=1, version=32768),
        Command(code=1, opaque=2**31),
        Command(code=1, flag=-(2**31) - 1),
        Command(code=1, ext_fields={"k" * 32768: "v"}),
    ],
)
def test_what_does_not_fit_cannot_be_written(command: Command) -> None:
    command.serialize_type = SerializeType.ROCKETMQ

    with pytest.raises(ProtocolError, match="does not fit a binary header"):
        command.encode()


def test_the_body_follows_the_header() -> None:
    command = Command(code=1, body=b"body", serialize_type=SerializeType.ROCKETMQ)

    (frame,) = FrameParser().feed(command.encode())

    assert Command.decode(frame) == command
    assert Command.decode((1, header(), b"")).body is None
