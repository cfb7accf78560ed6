"""Typed header fields: parsed as Java parses them, with an error that names the field."""

from __future__ import annotations

import pytest

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.fields import Field, FieldValue, decode_fields, encode_fields, field_table
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS, request_fields
from orbitmq.protocol.command.response_fields import RESPONSE_FIELDS, response_fields
from orbitmq.protocol.errors import ProtocolError

SAMPLE = field_table("name:s! count:i at:l! force:b=false x=longName:s queueId:i=-1 note:s=")


def test_a_description_says_name_kind_and_default() -> None:
    assert field_table("topic:s! x=queueId:i=-1 lo:b") == (
        Field("topic", "topic", "s", required=True, default=None),
        Field("queueId", "x", "i", required=False, default=-1),
        Field("lo", "lo", "b", required=False, default=None),
    )


@pytest.mark.parametrize("description", ["topic", "topic:x", "topic:s?", "+unknown"])
def test_a_description_of_nothing_is_a_mistake(description: str) -> None:
    with pytest.raises(ValueError, match="describes no field"):
        field_table(description)


def test_fields_have_their_types_and_absent_ones_their_defaults() -> None:
    assert decode_fields({"name": "n", "at": "-5", "x": "y", "other": "z"}, SAMPLE) == {
        "name": "n",
        "count": None,
        "at": -5,
        "force": False,
        "longName": "y",
        "queueId": -1,
        "note": "",
    }


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("True", True), ("false", False), ("1", False), ("", False)]
)
def test_a_boolean_is_true_only_for_the_word(text: str, value: bool) -> None:
    assert decode_fields({"b": text}, field_table("b:b")) == {"b": value}


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-0", 0), ("+7", 7), ("007", 7), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31)), ("٣", 3)],
)
def test_a_number_is_read_as_java_reads_it(text: str, value: int) -> None:
    assert decode_fields({"i": text}, field_table("i:i")) == {"i": value}


@pytest.mark.parametrize(
    "text", ["", "-", "+", " 1", "1 ", "1_0", "1.0", "0x1", "1L", "--1", "+-1", "²", "nan", "9" * 5000]
)
@pytest.mark.parametrize("kind", ["i", "l"])
def test_what_java_cannot_read_as_a_number_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ProtocolError, match="field number: "):
        decode_fields({"number": text}, field_table(f"number:{kind}"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [("i", str(2**31)), ("i", str(-(2**31) - 1)), ("l", str(2**63)), ("l", str(-(2**63) - 1))],
)
def test_a_number_outside_its_range_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=f"field number: '{text}' is not an int"):
        decode_fields({"number": text}, field_table(f"number:{kind}"))


@pytest.mark.parametrize("text", [str(2**63 - 1), str(-(2**63))])
def test_the_ends_of_the_range_of_a_long_are_in_it(text: str) -> None:
    assert decode_fields({"l": text}, field_table("l:l")) == {"l": int(text)}


def test_a_missing_field_is_named_with_both_of_its_names() -> None:
    with pytest.raises(ProtocolError, match=r"field b \(topic\) is missing"):
        decode_fields({"a": "group"}, request_fields(RequestCode.SEND_MESSAGE_V2))


def test_fields_are_written_in_the_order_of_the_table_without_those_that_are_none() -> None:
    values: dict[str, FieldValue] = {"longName": "y", "at": 5, "name": "n", "count": None, "force": True}

    assert list(encode_fields(values, SAMPLE).items()) == [
        ("name", "n"),
        ("at", "5"),
        ("force", "true"),
        ("x", "y"),
    ]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"name": "n"}, "field at .* is missing"),
        ({"name": "n", "at": 2**63}, "field at"),
        ({"name": "n", "at": 1, "count": 2**31}, "field count"),
        ({"name": "n", "at": True}, "field at"),
        ({"name": "n", "at": "1"}, "field at"),
        ({"name": 5, "at": 1}, "field name"),
        ({"name": "n", "at": 1, "force": 1}, "field force"),
        ({"name": "n", "at": 1, "x": "y"}, "no such header field: x"),
    ],
)
def test_values_that_do_not_fit_the_table_cannot_be_written(values: dict[str, FieldValue], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        encode_fields(values, SAMPLE)


def test_both_forms_of_a_send_have_the_same_fields_under_other_names() -> None:
    long = {field.name: field.kind for field in request_fields(RequestCode.SEND_MESSAGE)}
    short = {field.name: field.kind for field in request_fields(RequestCode.SEND_MESSAGE_V2)}

    assert short == long
    letters = [f.wire_name for f in request_fields(RequestCode.SEND_MESSAGE_V2) if len(f.wire_name) == 1]
    assert "".join(letters) == "abcdefghijklmn"


def test_no_table_names_a_field_twice() -> None:
    for table in (*REQUEST_FIELDS.values(), *RESPONSE_FIELDS.values()):
        assert len({field.name for field in table}) == len(table)
        assert len({field.wire_name for field in table}) == len(table)


def test_codes_without_fields_have_an_empty_table() -> None:
    assert request_fields(RequestCode.GET_BROKER_CLUSTER_INFO) == ()
    assert request_fields(999_999) == ()
    assert response_fields(RequestCode.UNREGISTER_CLIENT) == ()
