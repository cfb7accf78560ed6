"""What is written is read back as it was, both readers agree, and no input makes them raise anything else."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given, settings

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import ObjectKey, dumps, loads

# Machines that run the tests are busy; how long an example takes says nothing.
unhurried = settings(deadline=None)

INTEGERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | st.text()
OBJECT_KEYS = st.dictionaries(st.text(), st.booleans() | INTEGERS | st.text(), max_size=4).map(ObjectKey.of)
KEYS = st.text().filter(lambda key: key != "$ref") | INTEGERS | OBJECT_KEYS


def values(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON values; an entry that is ``None`` is not written, so there are none."""
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner) | st.dictionaries(keys, inner.filter(lambda value: value is not None)),
        max_leaves=30,
    )


@unhurried
@given(values(KEYS), st.booleans(), st.booleans())
def test_what_is_written_is_read_back(value: Any, pretty: bool, ascii_only: bool) -> None:
    data = dumps(value, pretty=pretty, ascii_only=ascii_only)
    assert loads(data) == value
    assert loads(data.decode()) == value
    if ascii_only:
        assert data.isascii()


@unhurried
@given(values(KEYS))
def test_sorting_maps_changes_only_their_order(value: Any) -> None:
    assert loads(dumps(value, sort_maps=True)) == value


def for_browsers(value: Any) -> Any:
    """The same value with integers as strings where JavaScript's numbers are not exact."""
    if isinstance(value, dict):
        return {key: for_browsers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [for_browsers(inner) for inner in value]
    is_exact = not isinstance(value, int) or abs(value) < 2**53
    return value if is_exact else str(value)


@unhurried
@given(values(st.text().filter(lambda key: key != "$ref")))
def test_the_browser_compatible_form_is_standard_json(value: Any) -> None:
    assert json.loads(dumps(value, browser_compatible=True)) == for_browsers(value)


@unhurried
@given(values(st.text().filter(lambda key: key != "$ref")), st.sampled_from([None, 1, "\t"]))
def test_both_readers_agree_on_standard_json(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    # Only the tolerant reader takes comments.
    assert loads("/**/" + text) == loads(text) == json.loads(text)


PIECES = st.sampled_from(
    [
        *"{}[]:,'\"\\/*+-.0123456789",
        *("{{", "}:", "null", "true", "NaN", "new Date(", "Set[", "//", "/*", "*/", "\\u", "\\ud800", "1L", "2.5F"),
        *("1e9", '"$ref"', '{"$ref":"$', "$.a", "a", " ", "\n", "\ufeff", "\ud800", "é", "\x00"),
    ]
)


@unhurried
@given(st.text() | st.lists(PIECES).map("".join))
@example("[" * 100_000)
@example('{"a":' * 100_000)
@example("{" * 100_000)
@example("{{" * 5_000 + "}}" * 5_000)
def test_no_text_raises_anything_but_the_protocols_error(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        loads(text)


@unhurried
@given(st.binary())
def test_no_bytes_raise_anything_but_the_protocols_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        loads(data)


@unhurried
@given(values(KEYS), st.data())
def test_damaged_json_raises_nothing_but_the_protocols_error(value: Any, data: st.DataObject) -> None:
    text = bytearray(dumps(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        loads(text)
    with contextlib.suppress(ProtocolError):
        loads(text[: data.draw(st.integers(0, len(text)))])


@unhurried
@given(st.text(st.characters(codec=None)))
def test_whatever_text_is_read_can_be_encoded_again(text: str) -> None:
    for form in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        read = loads(form)
        assert read.encode().decode() == read
        assert read == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
