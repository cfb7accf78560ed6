"""Contents of one file on a virtual disk: what reads see, and what of it is durable.

Stores through a map are not intercepted. Changes are found by comparing the live bytes with the durable image, in
blocks first and in pages where a block differs. Untouched parts of a file cost nothing: the live bytes are an
anonymous map, which takes no memory until it is written, and the image omits zeros.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from orbitmq.native.buffer import Buffer

SECTOR = 512
"""The unit that a device writes atomically."""

PAGES_PER_BLOCK = 16
"""Pages compared in one step: 64 KiB of usual pages fit into the processor's cache."""


def _memory(size: int) -> Buffer:
    # Private, because reading a page of a shared anonymous map allocates it. A map of length 0 is refused.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if size else bytearray()


class PagedFile:
    """One file: live bytes, durable image, and the pages with space on the disk."""

    __slots__ = (
        "_block", "_durable", "_durable_room", "_durable_size", "_frozen", "_is_replaced", "_lost", "_nothing",
        "_room", "is_linked", "live", "maps", "mtime_ms", "page_size", "path", "size",
    )  # fmt: skip

    def __init__(self, path: str, page_size: int, size: int, mtime_ms: int) -> None:
        self.path = path
        self.page_size = page_size
        self.size = size
        self.mtime_ms = mtime_ms
        self.maps = 0
        """Number of open maps of this file."""
        self.is_linked = True
        """True if a name points to the file."""
        self.live = _memory(size)
        self._block = page_size * PAGES_PER_BLOCK
        self._nothing = bytes(self._block)
        self._room = bytearray(self._pages(size))
        self._durable: dict[int, bytes] = {}
        self._durable_size: int | None = None
        self._durable_room = b""
        self._lost: dict[int, bytes] = {}
        self._is_replaced = False
        self._frozen: dict[int, bytes] | None = None

    # Space

    def _pages(self, size: int) -> int:
        return -(-size // self.page_size)

    @property
    def room(self) -> int:
        """Bytes that the file takes on the disk."""
        return self._room.count(1) * self.page_size

    def missing_room(self, start: int, end: int) -> int:
        """Bytes that the disk must allocate before ``[start, end)`` can be stored."""
        first, last = start // self.page_size, self._pages(end)
        return max(last - first - self._room.count(1, first, last), 0) * self.page_size

    def take_room(self, start: int, end: int) -> None:
        first, last = start // self.page_size, self._pages(end)
        self._room[first:last] = b"\1" * (last - first)

    def fitting(self, start: int, end: int, free: int) -> int:
        """End of a write from ``start`` if the disk has this many bytes free."""
        if self.missing_room(start, end) <= free:
            return end - start
        at = start
        while at < end:
            step = min(end, (at // self.page_size + 1) * self.page_size)
            free -= self.missing_room(at, step)
            if free < 0:
                break
            at = step
        return at - start

    def pages_without_room(self) -> list[int]:
        """Changed pages that were not reserved."""
        return [page for page in self.changed() if not self._room[page]]

    # Live bytes

    def grow(self, size: int) -> None:
        """Extend the file to this size if it is smaller."""
        if size <= self.size:
            return
        grown = _memory(size)
        grown[: self.size] = self.live[:]
        self.live = grown
        self.size = size
        self._room.extend(bytes(self._pages(size) - len(self._room)))

    def store(self, offset: int, data: bytes) -> None:
        if not data:
            return
        end = offset + len(data)
        self.grow(end)
        self.take_room(offset, end)
        self.live[offset:end] = data
        for page in range(offset // self.page_size, self._pages(end)):
            self._lost.pop(page, None)

    def zero(self, start: int, end: int) -> None:
        """Make ``[start, end)`` zero without touching what is zero already."""
        while start < end:
            stop = min(end, (start // self._block + 1) * self._block)
            zeros = self._nothing[: stop - start]
            if self.live[start:stop] != zeros:
                self.live[start:stop] = zeros
            start = stop

    def replace(self) -> None:
        """Truncate to an empty file, as opening for writing does."""
        self.live = _memory(0)
        self.size = 0
        self._room = bytearray()
        self._lost.clear()
        self._is_replaced = True

    # Durability

    def changed(self) -> dict[int, bytes]:
        """Pages that differ from the durable image, with their bytes."""
        if self._frozen is not None:
            return self._frozen
        found: dict[int, bytes] = {}
        image: dict[int, bytes] = {} if self._is_replaced else self._durable
        step = self.page_size
        for start in range(0, self.size, self._block):
            now = bytes(self.live[start : start + self._block])
            before = image.get(start // self._block, self._nothing)[: len(now)].ljust(len(now), b"\0")
            if now == before:
                continue
            for at in range(0, len(now), step):
                if now[at : at + step] != before[at : at + step]:
                    found[(start + at) // step] = now[at : at + step]
        return found

    def sync(self) -> bool:
        """Make the changed pages durable, except those lost; returns whether there were any."""
        changed = self.changed()
        self._lost = {page: data for page, data in self._lost.items() if changed.get(page) == data}
        if self._is_replaced:
            self._durable.clear()
            self._is_replaced = False
        self._put_durable({page: data for page, data in changed.items() if page not in self._lost})
        for page in changed:
            self._room[page] = 1
        self._durable_size = self.size
        self._durable_room = bytes(self._room)
        return bool(changed)

    def lose_changes(self) -> None:
        """Effect of a failed sync: the changed pages count as clean although they are not on the disk."""
        self._lost = dict(self.changed())

    def freeze(self) -> None:
        """Remember the changes up to now; later stores belong to a dead machine."""
        if self._frozen is None:
            self._frozen = self.changed()

    def durable_bytes(self) -> bytes | None:
        if self._durable_size is None:
            return None
        image = self._rebuilt(self._durable_size, self._durable, {})
        return bytes(image.live[:])

    def _put_durable(self, pages: dict[int, bytes]) -> None:
        blocks: dict[int, bytearray] = {}
        for page, data in pages.items():
            number = page // PAGES_PER_BLOCK
            block = blocks.get(number)
            if block is None:
                length = min(self._block, self.size - number * self._block)
                before = self._durable.get(number, self._nothing)[:length].ljust(length, b"\0")
                block = blocks[number] = bytearray(before)
            at = (page % PAGES_PER_BLOCK) * self.page_size
            block[at : at + len(data)] = data
        self._durable.update((number, bytes(block)) for number, block in blocks.items())

    # After a power cut or kill

    def after_power_cut(self, rng: random.Random) -> PagedFile:
        """The file as the machine finds it, all of it durable."""
        size = self._durable_size or 0
        if self._is_replaced and rng.randrange(3) == 0:
            # The replacement never reached the disk.
            return self._settled(size, self._durable, {}, self._durable_room)
        image, room = self._durable, self._durable_room
        if self._is_replaced:
            size, image, room = 0, {}, b""
        if rng.random() < 0.5:
            size = self.size
        # Some cuts lose nothing and some lose everything: many independent draws would produce neither.
        share = rng.choice((0.0, 0.3, 0.7, 1.0))
        survivors: dict[int, bytes] = {}
        for page, now in sorted(self.changed().items()):
            if self._lost.get(page) == now and rng.random() < 0.75:
                continue
            if 0.0 < share < 1.0 and rng.random() < 0.25:
                survivors[page] = self._torn(page, now, image, rng)
            elif rng.random() < share:
                survivors[page] = now
        return self._settled(size, image, survivors, room)

    def _torn(self, page: int, now: bytes, image: dict[int, bytes], rng: random.Random) -> bytes:
        block = image.get(page // PAGES_PER_BLOCK, self._nothing)
        at = (page % PAGES_PER_BLOCK) * self.page_size
        before = block[at : at + len(now)].ljust(len(now), b"\0")
        sectors = range(0, len(now), SECTOR)
        return b"".join((now if rng.random() < 0.5 else before)[at : at + SECTOR] for at in sectors)

    def _settled(self, size: int, image: dict[int, bytes], pages: dict[int, bytes], room: bytes) -> PagedFile:
        file = self._rebuilt(size, image, pages)
        count = len(file._room)
        file._room = bytearray(room[:count].ljust(count, b"\0"))
        kept = {page: data[: size - page * self.page_size] for page, data in pages.items() if page < count}
        for page in kept:
            file._room[page] = 1
        file._durable = dict(image)
        file._put_durable(kept)
        file._durable_size = size
        file._durable_room = bytes(file._room)
        return file

    def _rebuilt(self, size: int, image: dict[int, bytes], pages: dict[int, bytes]) -> PagedFile:
        file = PagedFile(self.path, self.page_size, size, self.mtime_ms)
        parts = [(number * self._block, data) for number, data in image.items()]
        parts += [(page * self.page_size, data) for page, data in pages.items()]
        for at, data in parts:
            if at < size:
                fitting = data[: size - at]
                file.live[at : at + len(fitting)] = fitting
        return file

    def __deepcopy__(self, memo: dict[int, object]) -> PagedFile:
        """The same file for another process: everything written, with the same parts durable."""
        image = {} if self._is_replaced else self._durable
        file = self._rebuilt(self.size, image, self.changed())
        file._room = bytearray(self._room)
        file._durable = dict(self._durable)
        file._durable_size = self._durable_size
        file._durable_room = self._durable_room
        file._lost = dict(self._lost)
        file._is_replaced = self._is_replaced
        return file
