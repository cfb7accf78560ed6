"""JSON headers: what fastjson lets pass is understood as fastjson understands it.

The expectations were taken from real ``RemotingCommand.decode`` of 4.9.8 and 5.5.0; where the two differ, the more
forgiving one is followed.
"""

from __future__ import annotations

import pytest

from orbitmq.protocol.codes import LanguageCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.protocol.errors import ProtocolError


def decode(header: str | bytes) -> Command:
    return Command.decode((0, header.encode() if isinstance(header, str) else header, b""))


def header_of(command: Command) -> bytes:
    (frame,) = FrameParser().feed(command.encode())
    return frame[1]


def test_a_header_with_nothing_in_it_is_a_request_with_code_zero() -> None:
    assert decode("{}") == Command(code=0, version=0)


def test_every_key_is_read() -> None:
    command = decode(
        '{"code":310,"extFields":{"a":"x","b":"\\u4e2d"},"flag":2,"language":"GO","opaque":-7,'
        '"remark":"r","serializeTypeCurrentRPC":"ROCKETMQ","version":317,"unknown":{"a":[1]},"body":"x"}'
    )

    assert command == Command(
        code=310,
        opaque=-7,
        flag=2,
        ext_fields={"a": "x", "b": "中"},
        remark="r",
        language=LanguageCode.GO,
        version=317,
    )
    assert command.is_oneway
    assert not command.is_response


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("1", 1),
        ("-1", -1),
        ("+1", 1),
        ("01", 1),
        ("1L", 1),
        ("1S", 1),
        ("1.0", 1),
        ("1.5", 1),
        ("1e3", 1000),
        ("1.5D", 1),
        ("'5'", 5),
        ("true", 1),
        ("false", 0),
        ("null", 0),
        ('"1"', 1),
        ('"+5"', 5),
        ('"-5"', -5),
        ('"1.0"', 1),
        ('""', 0),
        ('"null"', 0),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
    ],
)
@pytest.mark.parametrize("name", ["code", "opaque", "flag", "version"])
def test_a_number_may_be_written_in_many_ways(name: str, written: str, number: int) -> None:
    assert getattr(decode(f'{{"{name}":{written}}}'), name) == number


@pytest.mark.parametrize(
    "written",
    [
        *('" 1"', '"abc"', '"0x10"', '"1L"', '"1.x"', '"-"', '"."', "[]", "[5]", "{}", "0x10", "1_000"),
        *("2147483648", "-2147483649", "99999999999999999999", '"2147483648"', "1e400", "NaN"),
        *('"' + "9" * 5000 + '"', "9" * 5000),
    ],
)
def test_what_is_no_32_bit_number_is_refused(written: str) -> None:
    with pytest.raises(ProtocolError):
        decode(f'{{"code":{written}}}')


@pytest.mark.parametrize(
    ("written", "language"),
    [
        ('"GO"', LanguageCode.GO),
        ('"go"', LanguageCode.GO),
        ('"NODE_JS"', LanguageCode.NODE_JS),
        ("3", LanguageCode.PYTHON),
        ('"3"', LanguageCode.PYTHON),
        ('"SWIFT"', LanguageCode.OTHER),
        ("null", LanguageCode.OTHER),
        ('""', LanguageCode.OTHER),
        ("99", LanguageCode.OTHER),
        ("-1", LanguageCode.OTHER),
        ("true", LanguageCode.OTHER),
        ("{}", LanguageCode.OTHER),
    ],
)
def test_a_language_is_a_name_or_a_number_and_an_unknown_one_is_other(written: str, language: LanguageCode) -> None:
    assert decode(f'{{"language":{written}}}').language is language


def test_a_missing_language_is_java() -> None:
    assert decode("{}").language is LanguageCode.JAVA


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("1", "1"),
        ("-0", "0"),
        ("1.0", "1.0"),
        ("1.50", "1.50"),
        ("-0.0", "0.0"),
        ("1e3", "1000.0"),
        ("1e-7", "1.0E-7"),
        ("1234567890.5", "1234567890.5"),
        ("12345678901234567890", "12345678901234567890"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1.00000000000000000001", "1.00000000000000000001"),
        ("1L", "1"),
        ("+5", "5"),
        ("true", "true"),
        ("false", "false"),
        ('""', ""),
        ('{"x":1,"y":"z\\""}', '{"x":1,"y":"z\\""}'),
        ('{"y":1,"x":null,"b":[1.0,2e3]}', '{"y":1,"b":[1.0,2000.0]}'),
        ('[1,"b",null,true]', '[1,"b",null,true]'),
        ("{}", "{}"),
        ('{"中":"文"}', '{"中":"文"}'),
        ('"\\x41\\\'"', "A'"),
        ('"tab\there\nand there"', "tab\there\nand there"),
        ('"\\ud83d\\ude00"', "😀"),
    ],
)
def test_a_field_value_of_any_type_becomes_the_text_that_fastjson_makes_of_it(written: str, text: str) -> None:
    assert decode(f'{{"extFields":{{"a":{written}}}}}').ext_fields == {"a": text}


@pytest.mark.parametrize(("written", "text"), [("1", "1"), ("1.50", "1.50"), ("[1,2]", "[1,2]")])
def test_a_remark_of_any_type_becomes_text_too(written: str, text: str) -> None:
    assert decode(f'{{"remark":{written}}}').remark == text


def test_an_empty_remark_is_kept() -> None:
    assert decode('{"remark":""}').remark == ""


def test_a_null_field_is_absent() -> None:
    assert decode('{"extFields":{"a":null,"b":"c"}}').ext_fields == {"b": "c"}
    assert decode('{"extFields":null}').ext_fields == {}


def test_of_a_repeated_key_the_last_value_counts() -> None:
    command = decode('{"code":1,"code":2,"extFields":{"a":"x","a":"y"}}')

    assert (command.code, command.ext_fields) == (2, {"a": "y"})


@pytest.mark.parametrize(
    "header",
    [
        "{code:1,opaque:7,extFields:{a:1,'b':'c'}}",
        "{'code':1,'opaque':7L,'extFields':{'a':'1','b':'c',},}",
        '  {"code":1,/* why */"opaque":7,"extFields":{"a":1,"b":"c"}}  ',
        '\ufeff{"code":1,"opaque":7,"extFields":{"a":1,"b":"c"}}',
    ],
)
def test_a_header_that_only_fastjson_can_read_is_read(header: str) -> None:
    assert decode(header) == Command(code=1, opaque=7, ext_fields={"a": "1", "b": "c"}, version=0)


def test_text_that_is_not_utf_8_is_read_with_replacement_characters_and_can_be_written_again() -> None:
    command = decode(b'{"extFields":{"a":"x\xff\xc3y","b":"\\ud800"}}')

    assert command.ext_fields == {"a": "x��y", "b": "�"}
    assert decode(header_of(command)).ext_fields == command.ext_fields


@pytest.mark.parametrize(
    "header",
    [
        *("", "null", "[]", "1", '"x"', '{"code":1', '{"code":1}x', '{"code":1}{}', "{", "\0"),
        *('{"extFields":[]}', '{"extFields":[1]}', '{"extFields":1}', '{"extFields":"{}"}'),
        *('{"extFields":{1:2}}', '{"extFields":{{"a":1}:2}}'),
    ],
)
def test_what_is_no_header_is_refused(header: str) -> None:
    with pytest.raises(ProtocolError):
        decode(header)


@pytest.mark.parametrize("depth", [400, 900, 1000, 1020, 1024, 1025, 5000, 200_000])
@pytest.mark.parametrize(
    ("before", "opening", "inner", "closing", "after"),
    [
        ("", "[", "", "]", ""),
        ('{"code":1,"x":', "[", "", "]", "}"),
        ('{"code":1,"x":', '{"x":', "1", "}", "}"),
        ('{"code":1,"extFields":{"a":', "[", "1.5", "]", "}}"),
        ('{"code":1,"extFields":{"f":1.5,"a":', "[", "", "]", "}}"),
        ('{"code":1,"remark":', '{"x":', "1", "}", "}"),
        ("{code:1,x:", "[", "", "]", "}"),
        ("{code:1,extFields:{a:", "{x:", "1L", "}", "}}"),
    ],
)
def test_deep_nesting_is_read_or_refused_but_never_overflows(
    depth: int, before: str, opening: str, inner: str, closing: str, after: str
) -> None:
    for end in (closing * depth + after, ""):
        try:
            decode(before + opening * depth + inner + end)
        except ProtocolError:
            continue
        assert depth <= 1024
        assert end


def test_a_header_is_written_as_java_writes_it() -> None:
    command = Command(
        code=0,
        opaque=5,
        flag=1,
        ext_fields={"z": "1", "a": 'q"\\/\b\f\n\r\t\x1f\x7f\x01 中😀'},
        remark="a\x01b\x02c",
        version=0,
    )

    assert header_of(command).decode() == (
        '{"code":0,"extFields":{"z":"1","a":"q\\"\\\\/\\b\\f\\n\\r\\t\\u001f\x7f\\u0001 中😀"},"flag":1,'
        '"language":"JAVA","opaque":5,"remark":"a\\u0001b\\u0002c","serializeTypeCurrentRPC":"JSON","version":0}'
    )


def test_what_is_null_is_not_written() -> None:
    assert header_of(Command(code=5, opaque=1, version=0)) == (
        b'{"code":5,"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":0}'
    )


def test_half_a_character_cannot_be_written() -> None:
    with pytest.raises(ProtocolError):
        Command(code=1, ext_fields={"a": "\ud800"}).encode()


def test_an_answer_carries_the_opaque_and_the_kind_of_header_of_its_request() -> None:
    request = Command(code=10, opaque=77, serialize_type=SerializeType.ROCKETMQ, language=LanguageCode.GO)

    answer = request.response(17, remark="no such topic")

    assert (answer.code, answer.opaque, answer.flag) == (17, 77, 1)
    assert answer.serialize_type is SerializeType.ROCKETMQ
    assert answer.is_response
    assert answer.language is LanguageCode.JAVA
    assert answer.ext_fields == {}
