"""Advice about maps: the compiled function and its plain twin take and refuse the same."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import pytest

import orbitmq.kernel
from orbitmq.kernel import advising

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = mmap.PAGESIZE
PIECES = 300
POPULATE_READ = 22
"""Linux 5.14."""
UNKNOWN = 12345

both = pytest.mark.parametrize(
    "advise", [advising.advise, orbitmq.kernel.advise], ids=["plain", "as the package has it"]
)


@pytest.fixture
def mapped(tmp_path: Path) -> mmap.mmap:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(PIECES * PAGE))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


@both
def test_advice_changes_nothing_in_a_map(mapped: mmap.mmap, advise: Callable[..., None]) -> None:
    before = bytes(mapped)
    advise(mapped, 5, len(mapped) - 7, 10 * PAGE, mmap.MADV_WILLNEED, POPULATE_READ)
    advise(mapped, 0, len(mapped) * 2, PAGE, mmap.MADV_RANDOM)
    advise(mapped, PAGE, PAGE, PAGE, mmap.MADV_NORMAL)
    advise(mapped, 2 * PAGE, PAGE, PAGE, mmap.MADV_NORMAL)
    assert bytes(mapped) == before


@both
def test_what_the_system_does_not_know_ends_it_without_an_error(
    mapped: mmap.mmap, advise: Callable[..., None]
) -> None:
    advise(mapped, 0, len(mapped), PAGE, UNKNOWN, mmap.MADV_NORMAL)


@both
@pytest.mark.parametrize(("start", "step"), [(-1, PAGE), (0, 0), (0, -PAGE)])
def test_parts_have_a_beginning_and_steps_a_size(
    mapped: mmap.mmap, advise: Callable[..., None], start: int, step: int
) -> None:
    with pytest.raises(ValueError, match="in steps"):
        advise(mapped, start, PAGE, step, mmap.MADV_NORMAL)


@both
def test_a_map_can_be_closed_afterwards(mapped: mmap.mmap, advise: Callable[..., None]) -> None:
    advise(mapped, 0, PAGE, PAGE, mmap.MADV_NORMAL)
    mapped.close()
