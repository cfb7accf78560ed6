"""Timer chains: the compiled function and its Python twin find the same units."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq import native
from orbitmq.native.python.timer_chain import follow_timer_chain
from orbitmq.store.timer.timer_log import DEFAULT, DELETE, ROLL, UNIT, UNIT_SIZE
from support.native.marks import needs_native

pytestmark = needs_native

BASE = 10_400


@st.composite
def units(draw: st.DrawFn, number: int) -> bytes:
    """A unit that leads back, mostly to one of this file."""
    here = BASE + number * UNIT_SIZE
    before = [BASE + at * UNIT_SIZE for at in range(number)]
    previous = draw(st.sampled_from([*before, *before, -1, BASE - UNIT_SIZE, here, BASE - 1]))
    magic = draw(
        st.sampled_from([DEFAULT] * 8 + [DEFAULT | ROLL, DEFAULT | DELETE, DEFAULT | DELETE | ROLL, 0, 16])
    )
    size = draw(st.sampled_from([UNIT_SIZE] * 20 + [0, 51]))
    return UNIT.pack(size, previous, magic, 7, 8, 9, 10, 11, 0)


@st.composite
def files(draw: st.DrawFn) -> bytearray:
    whole = b"".join([draw(units(number)) for number in range(draw(st.integers(0, 30)))])
    return bytearray(whole + draw(st.sampled_from([b"", b"\0" * 20, b"\xff" * 51])))


@given(
    file=files(),
    position=st.integers(-60, 40 * UNIT_SIZE),
    skip_to=st.integers(-1, 35 * UNIT_SIZE),
    most=st.integers(-1, 40),
)
def test_both_follow_a_chain_alike(file: bytearray, position: int, skip_to: int, most: int) -> None:
    arguments = file, BASE, BASE + position, BASE + skip_to, most
    assert native.load().follow_timer_chain(*arguments) == follow_timer_chain(*arguments)


@given(file=files(), skip_to=st.integers(0, 20), most=st.integers(0, 40))
def test_both_follow_a_chain_from_its_newest_unit(file: bytearray, skip_to: int, most: int) -> None:
    last = BASE + (len(file) // UNIT_SIZE - 1) * UNIT_SIZE
    arguments = file, BASE, last, BASE + skip_to * UNIT_SIZE, most
    assert native.load().follow_timer_chain(*arguments) == follow_timer_chain(*arguments)
