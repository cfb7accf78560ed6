"""Files of operators: definitions are read or refused, never anything else; YAML reads back as it was."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin import InvalidRequestError
from orbitmq.admin.definitions.model import FORMAT, Definition, Definitions, parse
from orbitmq.cli.admin.framework.yaml_text import yaml_text

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)


@given(VALUES)
def test_yaml_reads_back(value: Any) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


@given(st.binary(max_size=200) | VALUES.map(orjson.dumps))
def test_any_file_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidRequestError):
        parse(data)


@given(st.dictionaries(st.sampled_from(["cluster", "topics", "groups", "orderConfiguration", "x"]), VALUES))
def test_any_field_is_read_or_refused(fields: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidRequestError):
        parse(orjson.dumps({**fields, "format": FORMAT}))


NAMES = st.text("abc-%_", min_size=1, max_size=8)
SETTINGS = st.dictionaries(TEXT, LEAVES, max_size=3)


@given(st.dictionaries(NAMES, SETTINGS, max_size=4), st.dictionaries(NAMES, SETTINGS, min_size=1, max_size=2))
def test_definitions_read_back(topics: dict[str, Any], places: dict[str, Any]) -> None:
    made = Definitions(
        "c",
        tuple(Definition(name, settings) for name, settings in topics.items()),
        (Definition("group", {}, places),),
        {"orders": "broker-a:4"},
        {"broker-a": {"key": "value"}},
        7,
    )
    assert parse(orjson.dumps(made.to_json())) == made
