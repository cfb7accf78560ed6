"""Commands: what is written is read again, and no bytes make a decoder raise anything but its own error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.protocol.codes import LanguageCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import HOT_FIELD_NAMES, HOT_FIELDS, decode_header
from orbitmq.protocol.command.fields import decode_fields, encode_fields
from orbitmq.protocol.command.frame import FrameError, FrameParser
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS, request_fields
from orbitmq.protocol.errors import ProtocolError
from support.wire_captures import all_captured

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from orbitmq.protocol.command.fields import FieldValue
    from orbitmq.protocol.command.frame import Frame
    from orbitmq.protocol.command.header import Header

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
some_text = text.filter(bool)

json_commands = st.builds(
    Command,
    code=int32,
    opaque=int32,
    flag=int32,
    ext_fields=st.dictionaries(text, text, max_size=8),
    body=st.none() | st.binary(min_size=1, max_size=50),
    remark=st.none() | text,
    language=st.sampled_from(LanguageCode),
    version=int32,
)
binary_commands = st.builds(
    Command,
    code=int16,
    opaque=int32,
    flag=int32,
    ext_fields=st.dictionaries(some_text, some_text, max_size=8),
    body=st.none() | st.binary(min_size=1, max_size=50),
    remark=st.none() | some_text,
    language=st.sampled_from(LanguageCode),
    version=int16,
    serialize_type=st.just(SerializeType.ROCKETMQ),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=8,
)
fastjson_texts = st.lists(
    st.sampled_from(
        [
            *("{", "}", "[", "]", ":", ",", "'", '"', "code", '"code"', "'opaque'", '"extFields"', "flag"),
            *("language", "remark", "version", "1", "1L", "-1", "1.5", "null", "true", "\\u00e9", "\\ud800"),
            *("$ref", '"$ref"', '"$"', "/*", "*/", "//", "\n", " ", "é", "a", "NaN", "new Date(1)", "\\"),
        ]
    ),
    max_size=30,
).map("".join)


@given(json_commands)
def test_a_command_with_a_json_header_is_read_as_it_was_written(command: Command) -> None:
    (frame,) = FrameParser().feed(command.encode())

    assert Command.decode(frame) == command
    assert decode_header(frame) == command.header


@given(binary_commands)
def test_a_command_with_a_binary_header_is_read_as_it_was_written(command: Command) -> None:
    (frame,) = FrameParser().feed(command.encode())

    again = Command.decode(frame)
    assert again == command
    assert again.encode() == command.encode()
    assert decode_header(frame) == command.header


def check(frame: Frame) -> None:
    """Both decoders agree about the frame, and what they read can be written and read again."""
    hot = outcome(decode_header, frame)
    general = outcome(lambda it: Command.decode(it).header, frame)
    assert hot == general
    if isinstance(general, str):
        return
    command = Command.of(frame, general)
    (again,) = FrameParser().feed(command.encode())
    assert Command.decode(again) == command
    if command.code in HOT_FIELDS:
        assert hot_fields(command) == general_fields(command)


def outcome(decode: Callable[[Frame], Header], frame: Frame) -> Header | str:
    try:
        return decode(frame)
    except ProtocolError as error:
        return str(error)


def hot_fields(command: Command) -> Any:
    try:
        return HOT_FIELDS[command.code](command.ext_fields)
    except ProtocolError as error:
        return str(error)


def general_fields(command: Command) -> Any:
    try:
        values = decode_fields(command.ext_fields, request_fields(command.code))
    except ProtocolError as error:
        return str(error)
    return tuple(values[name] for name in HOT_FIELD_NAMES[command.code])


@given(st.sampled_from([0, 1]), st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_a_protocol_error(serialize_type: int, header: bytes) -> None:
    check((serialize_type, header, b""))


@given(fastjson_texts)
def test_arbitrary_pieces_of_json_raise_nothing_but_a_protocol_error(header: str) -> None:
    check((0, header.encode(), b""))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "code": json_values | st.sampled_from(sorted(HOT_FIELDS)),
            "opaque": json_values,
            "flag": json_values,
            "version": json_values,
            "language": json_values | st.sampled_from([language.name for language in LanguageCode]),
            "remark": json_values,
            "extFields": json_values | st.dictionaries(st.sampled_from("abcdefghijklmn"), json_values),
            "other": json_values,
        },
    )
)
def test_a_header_with_values_of_any_type_is_read_the_same_by_both_decoders(document: dict[str, Any]) -> None:
    check((0, json.dumps(document).encode(), b""))


REAL_FRAMES = [frame.wire for frame in all_captured()][::7]


@settings(max_examples=300)
@given(st.sampled_from(REAL_FRAMES), st.randoms(use_true_random=False))
def test_a_real_frame_with_damaged_bytes_raises_nothing_but_a_protocol_error(
    wire: bytes, chance: random.Random
) -> None:
    damaged = bytearray(wire)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(min(len(damaged), 600))
        kind = chance.randrange(4)
        if kind == 0:
            damaged[place] = chance.choice((0, 1, 0x22, 0x27, 0x2C, 0x30, 0x5C, 0x7F, 0x80, 0xFF))
        elif kind == 1:
            damaged[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del damaged[place : place + chance.randint(1, 8)]
        else:
            damaged[place:place] = damaged[place : place + chance.randint(1, 8)]
        if len(damaged) < 9:
            break
    try:
        frames = FrameParser().feed(bytes(damaged))
    except FrameError as error:
        frames = error.frames
    for frame in frames:
        check(frame)
    # The header with the damage in it, whatever the damage did to the frame around it.
    check((damaged[4] & 1 if len(damaged) > 4 else 0, bytes(damaged[8:400]), b""))


field_values: dict[str, st.SearchStrategy[FieldValue]] = {
    "s": text,
    "i": int32,
    "l": st.integers(-(2**63), 2**63 - 1),
    "b": st.booleans(),
}


@given(st.data(), st.sampled_from(sorted(REQUEST_FIELDS)))
def test_typed_fields_are_read_as_they_were_written(data: st.DataObject, code: int) -> None:
    table = request_fields(code)
    values: dict[str, FieldValue] = {
        field.name: data.draw(
            field_values[field.kind]
            if field.required or field.default is not None
            else st.none() | field_values[field.kind]
        )
        for field in table
    }

    ext_fields = encode_fields(values, table)

    assert decode_fields(ext_fields, table) == values
    if code in HOT_FIELDS:
        assert HOT_FIELDS[code](ext_fields) == tuple(values[name] for name in HOT_FIELD_NAMES[code])


@given(st.data(), st.sampled_from(sorted(REQUEST_FIELDS)))
def test_arbitrary_field_texts_raise_nothing_but_a_protocol_error(data: st.DataObject, code: int) -> None:
    table = request_fields(code)
    odd = text | st.integers().map(str) | st.sampled_from(["", "-", "+", "true", "9" * 5000, " 1", "1_0"])
    names = st.sampled_from([field.wire_name for field in table])
    command = Command(code=code, ext_fields=data.draw(st.dictionaries(names, odd)))

    if code in HOT_FIELDS:
        assert hot_fields(command) == general_fields(command)
    else:
        try:
            decode_fields(command.ext_fields, table)
        except ProtocolError:
            return
