"""Bodies: JSON of messages, serializers, and typed handlers."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import functools
import uuid
from typing import Any

import msgspec
import pydantic
import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import (
    AvroSerializer,
    BodyError,
    InvalidMessageError,
    JsonSerializer,
    Message,
    MsgspecSerializer,
    ProtobufSerializer,
    PydanticSerializer,
    ReceivedMessage,
)
from orbitmq.client.serialization.body import json_bytes, json_value
from orbitmq.client.serialization.convert import converted
from orbitmq.client.serialization.serializer import AUTO
from orbitmq.client.serialization.typed_handler import typed_handler


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass
class Order:
    id: int
    amount: float
    lines: list[Line] = dataclasses.field(default_factory=list)
    color: Color | None = None
    at: datetime.datetime | None = None
    token: uuid.UUID | None = None
    more: dict[str, int] = dataclasses.field(default_factory=dict)


class Model(pydantic.BaseModel):
    id: int
    tags: list[str] = []


class Packed(msgspec.Struct):
    id: int
    name: str = msgspec.field(default="", name="n")


ORDER = Order(
    1,
    2.5,
    [Line("a", 2), Line("b")],
    Color.RED,
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    uuid.UUID(int=7),
    {"x": 1},
)
SCHEMA = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
}


class Stored(ReceivedMessage):
    """A received message with nothing but a body."""

    def __init__(self, body: bytes) -> None:
        self._body = body


def test_json_bodies() -> None:
    message = Message("t", json={"id": 1, 2: [True, None], "größe": "ü"})
    assert Stored(message.body).json() == {"id": 1, "2": [True, None], "größe": "ü"}
    assert json_value(Message("t", json=None).body) is None
    assert json_value(Message("t", json=Model(id=1)).body) == {"id": 1, "tags": []}
    assert json_value(Message("t", json={"p": Packed(1, "x")}).body) == {"p": {"id": 1, "n": "x"}}
    lines = json_value(Message("t", json=ORDER).body)["lines"]
    assert lines == [{"item": "a", "count": 2}, {"item": "b", "count": 1}]
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        Message("t", json=object())
    with pytest.raises(BodyError, match="not JSON"):
        Stored(b"{").json()


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_json)
def test_json_comes_back_as_it_was_sent(value: Any) -> None:
    assert json_value(json_bytes(value)) == value


@given(st.binary())
def test_any_bytes_are_a_value_or_a_body_error(body: bytes) -> None:
    for kind in (dict[str, int], Order, list[Line], int | None, Model, Packed, str, Struct):
        with contextlib.suppress(BodyError):
            AUTO.loads(body, kind)


@pytest.mark.parametrize(
    ("serializer", "value", "kind"),
    [
        (JsonSerializer(), ORDER, Order),
        (JsonSerializer(), [Line("a"), Line("b")], list[Line]),
        (PydanticSerializer(), Model(id=1, tags=["a"]), Model),
        (PydanticSerializer(), [Line("a", 2)], list[Line]),
        (MsgspecSerializer(), Packed(1, "x"), Packed),
        (MsgspecSerializer("msgpack"), Packed(1, "x"), Packed),
        (AvroSerializer(SCHEMA), Line("a", 2), Line),
        (AvroSerializer(SCHEMA), {"item": "a", "count": 2}, dict),
        (ProtobufSerializer(), StringValue(value="x"), StringValue),
        *((AUTO, value, type(value)) for value in (b"raw", "text", ORDER, Model(id=1), Packed(2), {"a": [1]})),
        (AUTO, StringValue(value="x"), StringValue),
    ],
)
def test_a_value_comes_back(serializer: Any, value: Any, kind: Any) -> None:
    assert serializer.loads(serializer.dumps(value), kind) == value


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        ({"id": "1", "amount": 1}, Order, "Order.id"),
        ({"id": 1, "amount": 1, "extra": 1}, Order, "no field 'extra'"),
        ({"id": 1}, Order, "amount"),
        ({"id": 1, "amount": 1, "lines": [{}]}, Order, "Order.lines: Line"),
        ({"id": 1, "amount": 1, "color": "blue"}, Order, "color"),
        (True, int, "not of the type int"),
        ([1], dict[str, int], "not of the type dict"),
        ([1, 2, 3], tuple[int, int], "2 items"),
        (1, complex, "not supported"),
    ],
)
def test_a_value_of_another_type_is_a_body_error(value: Any, kind: Any, reason: str) -> None:
    with pytest.raises(BodyError, match=reason):
        converted(value, kind)


def test_a_bad_body_is_a_body_error_of_every_serializer() -> None:
    for serializer, kind in (
        (PydanticSerializer(), Model),
        (MsgspecSerializer(), Packed),
        (MsgspecSerializer("msgpack"), Packed),
        (AvroSerializer(SCHEMA), Line),
        (ProtobufSerializer(), StringValue),
    ):
        with pytest.raises(BodyError):
            serializer.loads(b"\xff", kind)


# Typed handlers


def called(handler: Any, body: bytes, *, takes_list: bool = False) -> Any:
    message = Stored(body)
    made = typed_handler(handler, AUTO, takes_list=takes_list, is_async=False)
    return made([message, message] if takes_list else message)


def test_a_handler_gets_what_its_annotations_say() -> None:
    def both(line: Line, message: Message) -> Any:
        return line, message.body

    def reverse(message: ReceivedMessage, line: Line) -> Any:
        return line, message.body

    def body(line: Line) -> Any:
        return line

    def values(value: dict[str, Any], message) -> Any:  # type: ignore[no-untyped-def]
        return value, message.body

    def raw(body: bytes) -> bytes:
        return body

    text = b'{"item": "a"}'
    assert called(both, text) == called(reverse, text) == (Line("a"), text)
    assert called(body, text) == Line("a")
    assert called(values, text) == ({"item": "a"}, text)
    assert called(raw, text) == text


def test_a_handler_of_lists_gets_a_list_of_values() -> None:
    def handle(lines: list[Line], messages: list[Message]) -> Any:
        return lines, len(messages)

    assert called(handle, b'{"item": "a"}', takes_list=True) == ([Line("a"), Line("a")], 2)


def test_a_handler_without_a_typed_body_is_called_as_it_is() -> None:
    def plain(message: ReceivedMessage) -> Any: ...
    def untyped(message) -> Any: ...  # type: ignore[no-untyped-def]
    def anything(message: Any, retries: int = 3) -> Any: ...

    handlers: list[Any] = [plain, untyped, anything, [].append, lambda message: message]
    for handler in handlers:
        assert typed_handler(handler, AUTO, takes_list=False, is_async=False) is handler


def test_parameters_that_cannot_be_filled_are_refused_at_registration() -> None:
    def three(a: Line, b: Line, c: Line) -> None: ...
    def two(a: Line, b: Line) -> None: ...
    def unknown(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def batch(messages: list[Message]) -> None: ...

    refused: list[tuple[Any, str]] = [(three, "3 parameters"), (two, "two parameters"), (batch, "batch")]
    for handler, reason in [*refused, (unknown, "'Missing'")]:
        with pytest.raises(InvalidMessageError, match=reason):
            typed_handler(handler, AUTO, takes_list=False, is_async=False)


def test_a_decorator_that_passes_arguments_of_its_own_gets_the_message_alone() -> None:
    def handler(message: object, connection: object) -> tuple[object, object]:
        return message, connection

    @functools.wraps(handler)
    def decorated(message: object) -> Any:
        return handler(message, "connection")

    called = typed_handler(decorated, AUTO, takes_list=False, is_async=False)
    assert called("message") == ("message", "connection")
