"""Index files are looked through and cut alike, compiled or plain, whatever their bytes are."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq import native
from orbitmq.store.index.format import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, file_size
from orbitmq.store.index.index_file import IndexFile
from orbitmq.testing import MemoryDisk
from support.native.marks import needs_native

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_native

PATH = "/index"
T0 = 1_700_000_000_000
ENTRIES = 80

slot_counts = st.sampled_from([1, 2, 7, 64, 4099])
hashes = st.one_of(st.integers(0, 12), st.integers(0, 0x7FFFFFFF))
steps = st.one_of(st.just(0), st.integers(0, 1 << 40))
puts = st.lists(st.tuples(hashes, steps), min_size=1, max_size=70)
harms = st.lists(
    st.tuples(
        st.one_of(st.integers(0, HEADER_SIZE - 1), st.integers(HEADER_SIZE, HEADER_SIZE + 60 * ENTRY_SIZE)),
        st.binary(min_size=1, max_size=4),
    ),
    max_size=2,
)


def both(act: Callable[[], Any]) -> tuple[Any, Any]:
    """The same done natively and on the Python path."""
    compiled = act()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_selected", native.python_path())
        return compiled, act()


def filled(slots: int, entries: list[tuple[int, int]]) -> bytes:
    file = IndexFile.create(MemoryDisk(), PATH, slots, ENTRIES)
    offsets = list(itertools.accumulate([step for _, step in entries]))
    file.put([key_hash for key_hash, _ in entries], offsets, [T0] * len(entries))
    assert both(file.find_damage) == (None, None)
    return bytes(file.mapped.buffer[:])


@given(slot_counts, puts, harms, st.integers(0, 60), st.sampled_from([0, 0, 1, -1]))
@settings(max_examples=200)
def test_damage_is_found_and_cut_off_alike(
    slots: int, entries: list[tuple[int, int]], harm: list[tuple[int, bytes]], cut: int, beside: int
) -> None:
    whole = bytearray(filled(slots, entries))
    for at, written in harm:
        # Harm among the entries, which begin behind the slots.
        start = at + (slots * SLOT_SIZE if at >= HEADER_SIZE else 0)
        whole[start : start + len(written)] = written
    (offset,) = struct.unpack_from(">q", whole, HEADER_SIZE + slots * SLOT_SIZE + cut * ENTRY_SIZE + 4)
    assert len(whole) == file_size(slots, ENTRIES)

    def look_and_cut() -> tuple[object, ...]:
        disk = MemoryDisk()
        disk.write(PATH, bytes(whole))
        file = IndexFile.open(disk, PATH, slots, ENTRIES)
        found = file.find_damage()
        end = file.cut_after(offset + beside, T0)
        return found, end, file.header, file.find_damage(), bytes(file.mapped.buffer[:])

    compiled, plain = both(look_and_cut)
    assert compiled == plain
