"""Advice about maps: the compiled function and its plain twin take and refuse the same."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import pytest

import orbitmq.kernel
from orbitmq.kernel import advising
from orbitmq.store.disk import LocalMappedFile

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


large = pytest.mark.parametrize(
    "take_large", [advising.take_large, orbitmq.kernel.take_large], ids=["plain", "as the package has it"]
)


@large
def test_large_pages_are_taken_without_changing_anything(
    mapped: mmap.mmap, take_large: Callable[..., None]
) -> None:
    before = bytes(mapped)
    take_large(mapped, 0, 64 * PAGE, 16 * PAGE)
    take_large(mapped, 16 * PAGE, 1 << 40, 16 * PAGE)
    take_large(mapped, 32 * PAGE, 16 * PAGE, 16 * PAGE)
    take_large(mapped, 0, 0, 2 << 20)
    assert bytes(mapped) == before


@large
def test_large_pages_of_a_file_with_holes_are_in_memory_afterwards(
    tmp_path: Path, take_large: Callable[..., None]
) -> None:
    size = 4 << 20
    path = tmp_path / "file"
    with path.open("w+b") as file:
        file.truncate(size)
        os.posix_fallocate(file.fileno(), 0, size)
        mapped = mmap.mmap(file.fileno(), size)
    take_large(mapped, 0, size, 2 << 20)
    assert LocalMappedFile(str(path), writable=True).is_in_memory(0, size)
    assert bytes(mapped) == bytes(size)


@large
@pytest.mark.parametrize(
    ("start", "end", "size"), [(-PAGE, PAGE, PAGE), (1, PAGE, PAGE), (0, 1, PAGE), (0, PAGE, 0)]
)
def test_only_whole_large_pages_are_taken(
    mapped: mmap.mmap, take_large: Callable[..., None], start: int, end: int, size: int
) -> None:
    with pytest.raises(ValueError, match="whole pages"):
        take_large(mapped, start, end, size)
