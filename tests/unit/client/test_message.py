"""Messages to send: which bodies, keys, properties and times an application may give."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from orbitmq import InvalidMessageError, Message


@pytest.mark.parametrize("body", [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc"])
def test_bytes_and_text_are_bodies(body: Any) -> None:
    assert Message("t", body).body == b"abc"


@pytest.mark.parametrize("body", [42, True, 1.5, [1, 2], {1: 2}, {"a": 1}, None, object()])
def test_other_bodies_are_refused_with_the_way_to_send_them(body: Any) -> None:
    with pytest.raises(TypeError, match="json="):
        Message("t", body)


def test_a_message_has_exactly_one_body() -> None:
    for bodies in ({}, {"body": b"x", "json": 1}, {"json": 1, "value": 1}):
        with pytest.raises(TypeError, match="one body"):
            Message("t", **bodies)


@pytest.mark.parametrize("keys", ["order 42", ["order 42"], ["a", "b c"], ["tab\tkey"]])
def test_a_key_with_a_blank_is_refused_and_not_split(keys: Any) -> None:
    with pytest.raises(ValueError, match="blank"):
        Message("t", b"x", keys=keys)


def test_several_keys_are_a_list() -> None:
    assert Message("t", b"x", keys=["a", "b"]).keys == ["a", "b"]
    assert Message("t", b"x", keys="a").keys == ["a"]
    assert Message("t", b"x", keys=[]).keys == Message("t", b"x", keys="").keys == []


@pytest.mark.parametrize(
    "options",
    [
        {"keys": [1]},
        {"tags": 5},
        {"sharding_key": 5},
        {"properties": {"a": 1}},
        {"properties": {1: 1}},
        {"properties": [1]},
        {"tags": ["a"]},
        {"delay": "5"},
        {"deliver_at": "tomorrow"},
        {"delay": True},
        {"priority": "high"},
        {"delay_level": "3"},
        {"flag": "1"},
    ],
)
def test_options_of_a_wrong_type_are_a_value_error_that_names_them(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        Message("t", b"x", **options)
    assert isinstance(refused.value, InvalidMessageError)
    assert repr(next(iter(options.values()))).strip("[]{}").split(": ")[-1] in str(refused.value)


def test_a_delay_may_be_a_timedelta() -> None:
    message = Message("t", b"x", delay=datetime.timedelta(minutes=2))
    assert message.properties == Message("t", b"x", delay=120).properties
