"""Advice about maps: the compiled function and its plain twin take and refuse the same."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import pytest

from orbitmq import native
from orbitmq.native.python import madvise
from orbitmq.platform.local_mapped_file import LocalMappedFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = mmap.PAGESIZE
PIECES = 300
POPULATE_READ = 22
"""Linux 5.14."""
UNKNOWN = 12345

both = pytest.mark.parametrize("advise", [madvise.advise, native.load().advise], ids=["python", "selected"])


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
def test_advice_that_the_system_does_not_know_ends_it_without_an_error(
    mapped: mmap.mmap, advise: Callable[..., None]
) -> None:
    before = bytes(mapped)
    advise(mapped, 0, len(mapped), PAGE, UNKNOWN, mmap.MADV_NORMAL)
    assert bytes(mapped) == before


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
    assert mapped.closed


huge = pytest.mark.parametrize(
    "populate_huge_pages",
    [madvise.populate_huge_pages, native.load().populate_huge_pages],
    ids=["python", "selected"],
)


@huge
def test_large_pages_are_taken_without_changing_anything(
    mapped: mmap.mmap, populate_huge_pages: Callable[..., None]
) -> None:
    before = bytes(mapped)
    populate_huge_pages(mapped, 0, 64 * PAGE, 16 * PAGE)
    populate_huge_pages(mapped, 16 * PAGE, 1 << 40, 16 * PAGE)
    populate_huge_pages(mapped, 32 * PAGE, 16 * PAGE, 16 * PAGE)
    populate_huge_pages(mapped, 0, 0, 2 << 20)
    assert bytes(mapped) == before


@huge
def test_large_pages_of_a_file_with_holes_are_in_memory_afterwards(
    tmp_path: Path, populate_huge_pages: Callable[..., None]
) -> None:
    size = 4 << 20
    path = tmp_path / "file"
    with path.open("w+b") as file:
        file.truncate(size)
        os.posix_fallocate(file.fileno(), 0, size)
        mapped = mmap.mmap(file.fileno(), size)
    populate_huge_pages(mapped, 0, size, 2 << 20)
    assert LocalMappedFile(str(path), writable=True).is_in_memory(0, size)
    assert bytes(mapped) == bytes(size)


@huge
@pytest.mark.parametrize(
    ("start", "end", "size"), [(-PAGE, PAGE, PAGE), (1, PAGE, PAGE), (0, 1, PAGE), (0, PAGE, 0)]
)
def test_only_whole_large_pages_are_taken(
    mapped: mmap.mmap, populate_huge_pages: Callable[..., None], start: int, end: int, size: int
) -> None:
    with pytest.raises(ValueError, match="whole pages"):
        populate_huge_pages(mapped, start, end, size)
