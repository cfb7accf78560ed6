"""Entries of an index and hashes of keys are the same, compiled or plain, looped or by columns."""

from __future__ import annotations

import struct
from array import array

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq import native
from orbitmq.protocol.java import decode_utf8, index_hash
from orbitmq.store.index import entries as index_entries
from orbitmq.store.index.entries import plain_hash_keys, plain_put_entries
from orbitmq.store.index.format import HEADER_SIZE, file_size
from support.native.marks import needs_native

pytestmark = needs_native

SLOTS = 7
ENTRIES = 120
T0 = 1_700_000_000_000

hashes = st.one_of(st.integers(0, 12), st.integers(0, 0x7FFFFFFF))
times = st.one_of(st.integers(T0 - 10_000, T0 + 100_000), st.integers(0, 1 << 52))
entries = st.lists(st.tuples(hashes, st.integers(0, (1 << 63) - 1), times), min_size=1, max_size=90)
noisy_slots = st.lists(st.one_of(st.just(0), st.integers(-2, 150)), min_size=SLOTS, max_size=SLOTS)
texts = st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace"))


def columns_of(rows: list[tuple[int, int, int]]) -> tuple[array[int], array[int], array[int]]:
    key_hashes, offsets, timestamps = zip(*rows, strict=True)
    return array("i", key_hashes), array("q", offsets), array("q", timestamps)


@given(entries, st.integers(1, 29), st.one_of(st.integers(-1, 1), times), noisy_slots)
def test_entries_are_put_alike(rows: list[tuple[int, int, int]], first: int, begin: int, slots: list[int]) -> None:
    empty = bytearray(file_size(SLOTS, ENTRIES))
    struct.pack_into(f">{SLOTS}i", empty, HEADER_SIZE, *slots)
    compiled, looped, by_columns = bytearray(empty), bytearray(empty), bytearray(empty)
    columns = columns_of(rows)
    opened = native.load().put_entries(compiled, SLOTS, first, begin, *columns)
    arrays = [np.asarray(column) for column in columns]
    assert index_entries._put_many(by_columns, SLOTS, first, begin, *arrays) == opened
    assert by_columns == compiled
    singly = 0
    for number, row in enumerate(rows, first):
        begins = rows[0][2] if first == 1 < number else begin
        singly += plain_put_entries(looped, SLOTS, number, begins, *columns_of([row]))
    assert singly == opened
    assert looped == compiled
    again = bytearray(empty)
    assert native.load().put_entries(again, SLOTS, first, begin, *arrays) == opened
    assert again == compiled


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_no_time_is_too_far_away(begin: int, timestamp: int) -> None:
    compiled, plain = bytearray(file_size(SLOTS, ENTRIES)), bytearray(file_size(SLOTS, ENTRIES))
    columns = columns_of([(5, 7, timestamp)])
    assert native.load().put_entries(compiled, SLOTS, 3, begin, *columns) == 1
    assert plain_put_entries(plain, SLOTS, 3, begin, *columns) == 1
    assert compiled == plain


@given(st.lists(st.one_of(st.binary(max_size=40), texts)))
@example([b"", b"\xed\xa0\x80", b"\xed\xa0", "\U0001f600".encode(), b"x" * 700, "\u4e2d".encode() * 300])
def test_keys_are_hashed_alike(keys: list[bytes]) -> None:
    assert native.load().hash_keys is not None
    hashed = native.load().hash_keys(keys)
    assert hashed == plain_hash_keys(keys)
    assert list(array("i", hashed)) == [index_hash(decode_utf8(key)) for key in keys]


@pytest.mark.parametrize(
    ("first", "slots", "columns"),
    [
        (0, SLOTS, (array("i", [1]), array("q", [1]), array("q", [1]))),
        (ENTRIES, SLOTS, (array("i", [1]), array("q", [1]), array("q", [1]))),
        (0x7FFFFFFF, SLOTS, (array("i", [1]), array("q", [1]), array("q", [1]))),
        (1, 0, (array("i", [1]), array("q", [1]), array("q", [1]))),
        (1, 1 << 40, (array("i", [1]), array("q", [1]), array("q", [1]))),
        (1, SLOTS, (array("i", [1, 2]), array("q", [1]), array("q", [1]))),
        (1, SLOTS, (array("i", [1]), array("q", [1]), array("q", []))),
    ],
)
def test_what_does_not_fit_is_refused(
    first: int, slots: int, columns: tuple[array[int], array[int], array[int]]
) -> None:
    file = bytearray(file_size(SLOTS, ENTRIES))
    with pytest.raises(ValueError, match="fit into the file"):
        native.load().put_entries(file, slots, first, 0, *columns)
    assert not any(file)


@pytest.mark.parametrize(
    "hashes",
    [array("q", [1]), np.array([1], ">i4"), np.array([1, 2, 3, 4], np.int32)[::2]],
    ids=["too wide", "of another machine", "with gaps"],
)
def test_columns_of_another_kind_are_refused(hashes: index_entries.Column) -> None:
    file = bytearray(file_size(SLOTS, ENTRIES))
    with pytest.raises((TypeError, ValueError, BufferError)):
        native.load().put_entries(file, SLOTS, 1, 0, hashes, array("q", [1]), array("q", [1]))
    assert not any(file)
