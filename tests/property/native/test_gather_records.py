"""What is gathered for an answer is the same, compiled or plain, and what it should be."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from orbitmq import native
from orbitmq.native.python.gather_records import gather_records
from support.native.marks import needs_native

UNIT = struct.Struct(">qiq")
FILE = bytes(range(256)) * 4
BASE = 1 << 20

pytestmark = needs_native

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


LIGHT = 0, -1
"""The queue of records that may be of any."""


@given(places, limits, st.integers(0, 1100))
def test_records_in_their_order(gaps: list[tuple[int, int]], limits: tuple[int, int, int], end: int) -> None:
    of = LIGHT
    units, at = [], BASE
    for gap, size in gaps:
        at += gap
        units.append((at, size, 0))
        at += size
    packed = b"".join([UNIT.pack(*unit) for unit in units])
    got = native.load().gather_records(packed, bytearray(FILE), BASE, BASE + end, *limits, *of)
    assert got == gather_records(packed, bytearray(FILE), BASE, BASE + end, *limits, *of)
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
    of = LIGHT
    packed = b"".join([UNIT.pack(*unit) for unit in units])
    end = BASE + len(FILE)
    got = native.load().gather_records(packed, bytearray(FILE), BASE, end, *limits, *of)
    assert got == gather_records(packed, bytearray(FILE), BASE, end, *limits, *of)


heads = st.lists(
    st.tuples(st.integers(0, 9), st.integers(36, 60), st.integers(0, 20), st.integers(0, 3)), min_size=1, max_size=8
)


@given(heads, limits, st.integers(0, 2), st.sampled_from([0, 5, (1 << 63) - 2]))
def test_records_of_another_queue_or_number_are_not_given(
    made: list[tuple[int, int, int, int]], limits: tuple[int, int, int], queue_id: int, number: int
) -> None:
    log, units = bytearray(), b""
    is_right = True
    for count, (gap, size, wrong, which) in enumerate(made):
        log += bytes(gap)
        at = BASE + len(log)
        values = [size, queue_id, number + count, at]
        if wrong == 0:
            values[which] ^= 1
            is_right = False
        log += struct.pack(">iIIiiqq", values[0], 0, 0, values[1], 0, values[2] % (1 << 63), values[3]).ljust(
            size, b"."
        )
        units += UNIT.pack(at, size, 0)
    end = BASE + len(log)
    got = native.load().gather_records(units, log, BASE, end, 1 << 20, *limits[1:], queue_id, number)
    assert got == gather_records(units, log, BASE, end, 1 << 20, *limits[1:], queue_id, number)
    fits = number + len(made) < 1 << 63
    assert (got is not None) == (is_right and fits)
