"""fastjson's dialect: what is understood, what is refused, and that writing gives fastjson's own bytes.

The expected texts of the writing half were made with fastjson 2.0.59, the version in RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import (
    MAX_DEPTH,
    MAX_REFERENCED_VALUES,
    BlankArray,
    ObjectKey,
    dumps,
    java_double,
    loads,
)

QUEUE = ObjectKey((("brokerName", "b"), ("queueId", 0), ("topic", "t")))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":[1,2.5,null,true,"x"]}', {"a": [1, 2.5, None, True, "x"]}),
        ("{0:12,-1:7}", {0: 12, -1: 7}),
        ("{1.5:1}", {1.5: 1}),
        ('{name:1,_b:2,$c:3,true:4,null:5,"d":6}', {"name": 1, "_b": 2, "$c": 3, "true": 4, "null": 5, "d": 6}),
        ('{{"brokerName":"b","queueId":0,"topic":"t"}:5}', {QUEUE: 5}),
        ('{{"topic":"t","queueId":0,"brokerName":"b"}:5}', {QUEUE: 5}),
        ('{{}:{{"a":1}:{}}}', {ObjectKey(()): {ObjectKey((("a", 1),)): {}}}),
        ("{'a':'it\\'s'}", {"a": "it's"}),
        ("[1L,2.5F,3D,1B,1S,2f]", [1, 2.5, 3.0, 1, 1, 2.0]),
        ('{"a":1,}', {"a": 1}),
        ("[1,]", [1]),
        ("[+1,01,.5,1.,1e2,1E-2]", [1, 1, 0.5, 1.0, 100.0, 0.01]),
        ("[undefined,Infinity,-Infinity,1e400]", [None, math.inf, -math.inf, math.inf]),
        ('// first\n{"a":/* second */1}//last', {"a": 1}),
        ("[new Date(123),Set[1,2],TreeSet[1]]", [123, [1, 2], [1]]),
        ('["a\tb\nc\x00"]', ["a\tb\nc\x00"]),
        ('["\\x41\\v\\0\\7\\/",]', ["A\v\x00\x07/"]),
        ("\ufeff [1] ", [1]),
        ('{"a":1,"a":2,}', {"a": 2}),
        ("[9223372036854775807,-9223372036854775808,18446744073709551615,]", [2**63 - 1, -(2**63), 2**64 - 1]),
    ],
)
def test_what_fastjson_takes_is_understood(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value
    assert loads(bytearray(text.encode())) == value
    assert loads(memoryview(text.encode())) == value


def test_not_a_number_is_read_as_one() -> None:
    assert math.isnan(loads("[NaN]")[0])


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "x", "[1 2]", '{"a" 1}', '{"a":}', "[-]", '{"a":1', "[1", "[1}", '{"a":1]', "[,1]", "[1,,2]"),
        *("{,}", '{"a":1}x', "[tru]", "[1.5.2]", "[1x]", '["\\q"]', '["\\u12"]', '"abc', "'abc", "/* open", "[:]"),
        *("{[1]:2}", "{a.b:1}", "{{1}:2}", "{:1}", "]", "}", '{"a":1:2}', "[new Date(x)]", "[new Date()]"),
        *('{{"a":[]}:1}', '{{"a":{}}:1}', "{{{}:1}:2}", '{"a","b"}', "[1]2", "[0x1F]", "//only a comment"),
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        loads(text)


@pytest.mark.parametrize("tail", ["", ","])
def test_integers_beyond_64_bits_are_floats_in_either_reader(tail: str) -> None:
    # A trailing comma sends the text to the tolerant reader.
    numbers = loads(f"[18446744073709551616,-9223372036854775809,{'9' * 300}{tail}]")
    assert numbers == [2.0**64, -(2.0**63), float("9" * 300)]
    assert all(type(number) is float for number in numbers)
    assert loads(f"[{'9' * 5000},]") == [math.inf]


def test_what_is_no_utf8_becomes_the_replacement_character() -> None:
    assert loads(b'["a\xff\xc3"]') == ["a��"]


def test_surrogates_are_paired_or_replaced() -> None:
    assert loads('["\\ud83d\\ude00"]') == ["😀"]
    assert loads('["\\ud83dx",]') == ["�x"]
    assert loads('["\\ud83d"]') == ["�"]
    assert loads("[\"\ud800\",{'\\udc00':1}]") == ["�", {"�": 1}]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ("{a:", "}"), ('["x",[', "]]")])
def test_nesting_has_the_same_limit_in_either_reader(opening: str, closing: str) -> None:
    deepest = MAX_DEPTH // len(closing)
    loads(opening * deepest + "1" + closing * deepest)
    for levels in (deepest + 1, 10 * deepest, 1_000_000):
        with pytest.raises(ProtocolError):
            loads(opening * levels + "1" + closing * levels)
        with pytest.raises(ProtocolError):
            loads(opening * levels)


def test_object_keys_nested_as_bombs_are_refused() -> None:
    for levels in (10, 5000, 500_000):
        with pytest.raises(ProtocolError):
            loads("{" * levels + "}:1}" * levels)


def test_references_stand_for_what_was_written_before() -> None:
    value = loads(
        '{"brokers":[{"name":"a","addrs":{0:"x"}}],"by.name":{"%RETRY%g":[1,2]},'
        '"r":[{"$ref":"$.brokers[0]"},{"$ref":"$.by\\\\.name.%RETRY%g"},{"$ref":"$.brokers[0].addrs.0"},'
        '{"$ref":"$[\\"by.name\\"]"},{"$ref":"$[\'brokers\'][0].name"},{"$ref":"$.r[0].addrs"}]}'
    )
    broker = {"name": "a", "addrs": {0: "x"}}
    assert value["r"] == [broker, [1, 2], "x", {"%RETRY%g": [1, 2]}, "a", {0: "x"}]


def test_references_in_standard_json_are_resolved_too() -> None:
    assert loads('[{"a":1},{"$ref":"$[0]"}]') == [{"a": 1}, {"a": 1}]
    assert loads('{"$ref":1}') == {"$ref": 1}
    assert loads('{"$ref":"price"}') == {"$ref": "price"}
    assert loads('{"$ref":"$.a","a":1}') == {"$ref": "$.a", "a": 1}
    assert loads('"$ref"') == "$ref"


@pytest.mark.parametrize(
    "text",
    [
        '{"$ref":"$"}',
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":".."}}',
        '{"a":{"$ref":"@"}}',
        '{"a":{"b":{"$ref":"$.a"}}}',
        '{"a":{"$ref":"$.b"},"b":{"x":1}}',
        '{"a":{"$ref":"$.a"}}',
        '[{"$ref":"$[1]"},{"$ref":"$[0]"}]',
        '[1,{"$ref":"$[7]"}]',
        '[1,{"$ref":"$.x"}]',
        '[1,{"$ref":"$x"}]',
        '[1,{"$ref":"$.[0]"}]',
    ],
)
def test_references_that_would_make_a_circle_or_lead_nowhere_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match=r"\$ref"):
        loads(text)


def test_references_cannot_be_stacked_into_billions_of_values() -> None:
    levels = []
    for level in range(12):
        references = ",".join([f'{{"$ref":"$.l{level}"}}'] * 10)
        levels.append(f'"l{level + 1}":[{references}]')
    with pytest.raises(ProtocolError, match=str(MAX_REFERENCED_VALUES)):
        loads('{"l0":[0],' + ",".join(levels) + "}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": None, "c": [None, True]}, '{"a":1,"c":[null,true]}'),
        ({0: "x", -3: {1.5: 2}}, '{0:"x",-3:{1.5:2}}'),
        ({QUEUE: {"o": 5}}, '{{"brokerName":"b","queueId":0,"topic":"t"}:{"o":5}}'),
        (
            "".join(map(chr, range(0x20))) + "\"\\/'<>&\x7f\x80\xa0\u2028\ufeff\uffff中😀",
            r'"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f\u0010\u0011\u0012\u0013'
            r"\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f"
            '\\"\\\\/\'<>&\x7f\x80\xa0\u2028\ufeff\uffff中😀"',
        ),
        ("x\ud800y", '"x?y"'),
        ([math.nan, math.inf, -0.0, 9007199254740993], "[null,null,-0.0,9007199254740993]"),
        ([BlankArray(), [], {}, ()], "[[],[],{},[]]"),
        ("plain", '"plain"'),
        (None, "null"),
    ],
)
def test_the_compact_form_is_fastjsons(value: Any, text: str) -> None:
    assert dumps(value) == text.encode()


def test_the_pretty_form_is_fastjsons() -> None:
    value = {
        "array": (55, 110),
        "bean": {"none": None},
        "blank": BlankArray(),
        "list": ["a", [], {"y": 1}, None],
        "long list": (),
        "map": {},
        "numbers": {1: 2, QUEUE: 3},
    }
    assert dumps(value, pretty=True).decode() == (
        '{\n\t"array":[55,110],\n\t"bean":{\n\t\t\n\t},\n\t"blank":[\n\t\t\n\t],\n'
        '\t"list":[\n\t\t"a",\n\t\t[],\n\t\t{\n\t\t\t"y":1\n\t\t},\n\t\tnull\n\t],\n'
        '\t"long list":[],\n\t"map":{},\n\t"numbers":{\n\t\t1:2,\n'
        '\t\t{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"t"\n\t\t}:3\n\t}\n}'
    )


def test_the_browser_compatible_form_is_standard_json() -> None:
    value = {"é": {10: 2**53 - 1, 9: 2**53, -1: -(2**53)}, "d": 1e-5}
    assert (
        dumps(value, browser_compatible=True).decode()
        == '{"é":{"10":9007199254740991,"9":"9007199254740992","-1":"-9007199254740992"},"d":1.0E-5}'
    )
    assert dumps({"é中😀": "é"}, ascii_only=True) == b'{"\\u00e9\\u4e2d\\ud83d\\ude00":"\\u00e9"}'


def test_sorted_maps_put_numbers_by_size_and_text_as_java_compares_it() -> None:
    assert dumps({10: 1, 9: 2, 1.5: 3, -1: 4}, sort_maps=True) == b"{-1:4,1.5:3,9:2,10:1}"
    astral, last = "\U00010000", "\uffff"
    assert list(loads(dumps({last: 1, astral: 2, "B": 3, "a": 4}, sort_maps=True))) == ["B", "a", astral, last]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (9.99e-4, "9.99E-4"),
        (1e-5, "1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-1.5e300, "-1.5E300"),
        (123456789012345680.0, "1.2345678901234568E17"),
        (0.016666666666666666, "0.016666666666666666"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "null"),
        (-math.inf, "null"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text


@pytest.mark.parametrize("value", [object(), {"a": b"x"}, {(1, 2): 3}, {None: 1}, {1, 2}, BlankArray([1])])
def test_what_has_no_json_form_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ProtocolError):
        dumps(circle)


class Topic(enum.StrEnum):
    ORDERS = "orders"


class OldTopic(str, enum.Enum):  # noqa: UP042 - as applications for Python 3.10 write it
    ORDERS = "orders"


@pytest.mark.parametrize("topic", [Topic.ORDERS, OldTopic.ORDERS])
def test_members_of_enumerations_of_text_are_written_as_text(topic: str) -> None:
    assert dumps({"topic": topic, "offsets": {topic: 1}}) == b'{"topic":"orders","offsets":{"orders":1}}'
