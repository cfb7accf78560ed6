"""Every body is read back as it was written, and no JSON makes one raise anything but the protocol's error."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import types
import typing
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from orbitmq.protocol import bodies
from orbitmq.protocol.bodies import Body, RegisterBrokerBody, TopicConfig, TopicQueueMappingInfo
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import dumps
from orbitmq.store import config_tables as config_json

# Machines that run the tests are busy; how long an example takes says nothing.
unhurried = settings(deadline=None)

LONGS = st.integers(-(2**63), 2**63 - 1)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    # A map whose only key is that is fastjson's reference to another value.
    str: st.text().filter(lambda text: text != "$ref"),
    int: LONGS,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
}
ALL = sorted(
    {
        body
        for module in (bodies, config_json)
        for body in vars(module).values()
        if isinstance(body, type) and issubclass(body, Body) and body is not Body
    },
    key=lambda body: body.__name__,
)


def filled(hint: Any) -> st.SearchStrategy[Any]:
    """Values that a type hint of a body allows."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (one,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
        return st.none() | filled(one)
    if typing.get_origin(hint) is typing.Annotated:
        base, mark = typing.get_args(hint)
        return st.integers(0, 2**100) if mark == "BitSet" else filled(base)
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is list:
        return st.lists(filled(arguments[0]), max_size=3)
    if kind is tuple:
        return st.lists(filled(arguments[0]), max_size=3).map(tuple)
    if kind is dict:
        return st.dictionaries(filled(arguments[0]), filled(arguments[1]), max_size=3)
    if issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    if issubclass(kind, Body):
        return instances(kind)
    return PLAIN[kind]


def instances(body: type[Body]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(body, include_extras=True)
    names = [field.name for field in dataclasses.fields(body)]  # type: ignore[arg-type]
    return st.builds(body, **{name: filled(hints[name]) for name in names})


def names_in_java(body: type[Body]) -> list[str]:
    """Every property that a body reads or writes."""
    found = [*body().to_json()]
    for field in dataclasses.fields(body):  # type: ignore[arg-type]
        head, *tail = field.name.split("_")
        found += field.metadata.get("java", (head + "".join(map(str.title, tail)),))
    return found


@pytest.mark.parametrize("body", ALL, ids=lambda body: body.__name__)
def test_what_a_body_writes_it_reads_back(body: type[Body]) -> None:
    @settings(unhurried, max_examples=12)
    @given(instances(body), st.booleans(), st.booleans())
    def check(value: Body, pretty: bool, browser_compatible: bool) -> None:
        data = value.encode(pretty=pretty, browser_compatible=browser_compatible)
        assert body.decode(data) == value
        assert body.from_json(value.to_json()) == value
        assert list(value.to_json()) == sorted(value.to_json())

    check()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | LONGS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("body", ALL, ids=lambda body: body.__name__)
def test_no_json_makes_a_body_raise_anything_but_the_protocols_error(body: type[Body]) -> None:
    @settings(unhurried, max_examples=25)
    @given(st.dictionaries(st.sampled_from(names_in_java(body)), ANYTHING))
    def check(value: dict[str, Any]) -> None:
        with contextlib.suppress(ProtocolError):
            body.from_json(value)
        with contextlib.suppress(ProtocolError):
            body.decode(dumps(value))

    check()


@unhurried
@given(st.sampled_from(ALL), st.binary() | st.text())
def test_no_bytes_make_a_body_raise_anything_but_the_protocols_error(body: type[Body], data: bytes | str) -> None:
    with contextlib.suppress(ProtocolError):
        body.decode(data)


WORDS = st.text(min_size=1).filter(lambda name: " " not in name)


@unhurried
@given(instances(RegisterBrokerBody), st.data())
def test_a_compressed_registration_is_read_back(body: RegisterBrokerBody, data: st.DataObject) -> None:
    names = data.draw(st.lists(WORDS, unique=True, max_size=3))
    wrapper = body.topic_config_serialize_wrapper
    # The compressed form carries names without spaces and leaves some things out.
    wrapper.topic_config_table = {
        name: dataclasses.replace(data.draw(instances(TopicConfig)), topic_name=name, topic_sys_flag=0, order=False)
        for name in names
    }
    wrapper.topic_queue_mapping_info_map = {
        name: dataclasses.replace(data.draw(instances(TopicQueueMappingInfo)), topic=name) for name in names
    }
    wrapper.topic_queue_mapping_detail_map = {}
    wrapper.mapping_data_version = type(wrapper.mapping_data_version)()
    assert RegisterBrokerBody.decode_compressed(body.encode_compressed()) == body


@unhurried
@given(instances(RegisterBrokerBody), st.data())
def test_a_damaged_compressed_registration_raises_nothing_but_the_protocols_error(
    body: RegisterBrokerBody, data: st.DataObject
) -> None:
    damaged = bytearray(body.encode_compressed())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        RegisterBrokerBody.decode_compressed(damaged)
