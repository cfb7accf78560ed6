"""What is gathered for an answer is the same, compiled or plain, and what it should be."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orbitmq.kernel
from orbitmq.kernel import gathering

UNIT = struct.Struct(">qiq")
FILE = bytes(range(256)) * 4
BASE = 1 << 20

pytestmark = pytest.mark.skipif(orbitmq.kernel.SendRuns is None, reason="the compiled kernel was not built")

places = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=12)
odd_units = st.lists(
    st.tuples(
        st.one_of(st.integers(BASE - 50, BASE + 1100), st.integers(-(1 << 63), (1 << 63) - 1)),
        st.one_of(st.integers(-5, 300), st.just(0x7FFFFFFF)),
        st.integers(-(1 << 63), (1 << 63) - 1),
    ),
    max_size=6,
)
limits = st.tuples(st.integers(0, 400), st.integers(0, 300), st.integers(0, 40))


@given(places, limits, st.integers(0, 1100))
def test_records_in_their_order(gaps: list[tuple[int, int]], limits: tuple[int, int, int], end: int) -> None:
    units, at = [], BASE
    for gap, size in gaps:
        at += gap
        units.append((at, size, 0))
        at += size
    packed = b"".join([UNIT.pack(*unit) for unit in units])
    got = orbitmq.kernel.gather(packed, bytearray(FILE), BASE, BASE + end, *limits)
    assert got == gathering.gather(packed, bytearray(FILE), BASE, BASE + end, *limits)
    if got is None:
        return
    count, size, last, stop, records = got
    given = units[:count]
    assert size == sum([unit[1] for unit in given])
    assert count == 1 or size <= limits[0]
    assert (last, stop) == (given[-1][0], given[-1][0] + given[-1][1])
    assert stop <= BASE + end
    if records is not None:
        assert records == b"".join([FILE[at - BASE :][:size] for at, size, _ in given])


@given(odd_units, limits)
def test_damaged_units_are_nobodys(units: list[tuple[int, int, int]], limits: tuple[int, int, int]) -> None:
    packed = b"".join([UNIT.pack(*unit) for unit in units])
    end = BASE + len(FILE)
    got = orbitmq.kernel.gather(packed, bytearray(FILE), BASE, end, *limits)
    assert got == gathering.gather(packed, bytearray(FILE), BASE, end, *limits)
