"""The properties string: RocketMQ's parse rules, and look-ups that need no parsing."""

from __future__ import annotations

import pytest

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.message.properties import encode, find, index_fields, parse, with_property, without


def item(name: str, value: str) -> str:
    return f"{name}\x01{value}\x02"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("a\x01b\x02", {"a": "b"}, id="one"),
        pytest.param("a\x01b", {"a": "b"}, id="the last may lack its end"),
        pytest.param("a\x01b\x02c\x01d", {"a": "b", "c": "d"}, id="two, unended"),
        pytest.param("a\x01\x02c\x01d\x02", {"c": "d"}, id="no value"),
        pytest.param("\x01b\x02c\x01d\x02", {"c": "d"}, id="no name"),
        pytest.param("\x01\x02\x02\x02", {}, id="separators only"),
        pytest.param("a\x02b\x02", {}, id="no separator inside the items"),
        pytest.param("a\x02b\x01c\x02", {"b": "c"}, id="the separator of the next item does not count"),
        pytest.param("abc\x02d\x01e\x02", {"d": "e"}, id="long item without a separator"),
        pytest.param("a\x01b\x01c\x02", {"a": "b\x01c"}, id="the first separator ends the name"),
        pytest.param("a\x01\x01\x02", {"a": "\x01"}, id="a separator is a value"),
        pytest.param("\x01a\x01b\x02", {}, id="an empty name is not skipped"),
        pytest.param("a\x01b\x02a\x01c\x02", {"a": "c"}, id="the later of two counts"),
        pytest.param("a\x01b\x02a\x01\x02", {"a": "b"}, id="an empty one does not"),
        pytest.param("a\x01\x00\x02", {"a": "\x00"}, id="NUL"),
        pytest.param("键\x01值\x02😀\x01🎉\x02", {"键": "值", "😀": "🎉"}, id="unicode"),
    ],
)
def test_parsing_follows_rocketmq(text: str, wanted: dict[str, str]) -> None:
    assert parse(text) == wanted
    assert parse(text.encode()) == wanted
    for name in ("a", "b", "c", "d", "键", "😀"):
        value = wanted.get(name)
        assert find(text.encode(), name.encode()) == (None if value is None else value.encode())


def test_bytes_that_are_not_utf_8_read_as_replacement_characters() -> None:
    assert parse(b"a\x01\xff\x02\xc3\x01b\x02") == {"a": "\ufffd", "\ufffd": "b"}


def test_encoding_ends_every_item() -> None:
    assert encode({"KEYS": "k1 k2", "TAGS": "标"}) == "KEYS\x01k1 k2\x02TAGS\x01标\x02".encode()
    assert encode({}) == b""


def test_empty_values_are_not_encoded() -> None:
    assert encode({"a": "", "b": "c"}) == b"b\x01c\x02"


def test_a_lone_surrogate_is_encoded_as_java_does() -> None:
    assert encode({"a": "x\ud800y"}) == b"a\x01x?y\x02"


@pytest.mark.parametrize(("name", "value"), [("", "v"), ("a\x01b", "v"), ("a\x02b", "v"), ("a", "v\x02b\x01c")])
def test_a_property_that_would_read_as_another_is_refused(name: str, value: str) -> None:
    with pytest.raises(ProtocolError):
        encode({name: value})
    with pytest.raises(ProtocolError):
        with_property(b"", name.encode(), value.encode())


def test_adding_an_empty_value_is_refused() -> None:
    with pytest.raises(ProtocolError):
        with_property(b"a\x01b\x02", b"a", b"")


def test_a_name_is_found_as_a_whole_only() -> None:
    properties = b"MY_TAGS\x01x\x02TAGS_\x01y\x02v\x01TAGS\x02w\x01TAGS\x01z\x02"
    assert find(properties, b"TAGS") is None
    assert find(properties, b"MY_TAGS") == b"x"
    assert find(properties, b"w") == b"TAGS\x01z"
    assert index_fields(properties) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", (None, None, None)),
        ("TAGS\x01t", (b"t", None, None)),
        ("KEYS\x01a b\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02", (b"t", b"a b", b"u")),
        ("UNIQ_KEY\x01u\x02WAIT\x01true\x02KEYS\x01k", (None, b"k", b"u")),
        ("TAGS\x01a\x02KEYS\x01b\x02TAGS\x01c\x02KEYS\x01d\x02", (b"c", b"d", None)),
        ("TAGS\x01a\x02TAGS\x01\x02", (b"a", None, None)),
        ("TAGS\x01\x02KEYS\x01\x02UNIQ_KEY\x01", (None, None, None)),
        ("UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02UNIQ_KEY\x01", (None, None, b"b")),
        ("TAGS\x01\x01\x02", (b"\x01", None, None)),
        ("x\x02TAGS\x01t\x02", (b"t", None, None)),
    ],
)
def test_index_fields_are_those_of_the_parsed_properties(
    text: str, wanted: tuple[bytes | None, bytes | None, bytes | None]
) -> None:
    assert index_fields(text.encode()) == wanted
    parsed = parse(text)
    assert tuple(parsed.get(name) for name in ("TAGS", "KEYS", "UNIQ_KEY")) == tuple(
        None if value is None else value.decode() for value in wanted
    )


def test_removing_keeps_the_bytes_of_the_others() -> None:
    properties = (item("a", "1") + item("WAIT", "true") + item("b", "\x01") + item("WAIT", "x")).encode()
    assert without(properties, {b"WAIT"}) == (item("a", "1") + item("b", "\x01")).encode()
    assert without(properties, {b"a", b"b", b"WAIT"}) == b""
    assert without(properties, {b"c", b"AIT"}) == properties
    assert without(b"", {b"c"}) == b""


def test_removing_works_on_an_unended_string() -> None:
    assert parse(without(b"a\x01b\x02c\x01d", {b"c"})) == {"a": "b"}
    assert without(b"a\x01b\x02c\x01d", {b"a"}) == b"c\x01d"


def test_adding_replaces_and_stands_last() -> None:
    assert with_property(b"", b"a", b"b") == b"a\x01b\x02"
    assert with_property(b"x\x01y", b"a", b"b") == b"x\x01y\x02a\x01b\x02"
    assert with_property(b"a\x01old\x02x\x01y\x02", b"a", b"b") == b"x\x01y\x02a\x01b\x02"
    assert with_property(b"aa\x01y\x02", b"a", b"b") == b"aa\x01y\x02a\x01b\x02"
    assert with_property(b"x\x01a\x01y\x02", b"a", b"b") == b"x\x01a\x01y\x02a\x01b\x02"
