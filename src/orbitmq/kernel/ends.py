"""What is known of a queue without its files, and what was counted for it: the plain twins of the kernel's types.

They hold numbers and nothing else. Classes are made on them whose objects the kernel reads and changes itself,
where it was built; where not, these take the same place.
"""

from __future__ import annotations


class QueueEnd:
    """The end of a queue.

    ``next_offset`` is what the next append gets; ``end`` is what readers see. They differ while records wait to
    become visible. ``min_offset`` is the smallest offset that can be read, ``max_physical`` where the last record
    of the queue ends in the commit log. The tail are the newest units, from number ``tail_start`` on. With
    ``full_at`` bytes it is to be written out.
    ``is_queued``: its owner has noted that there is something to write or sync. ``revision`` is another one when
    units that were there before the tail may be others now.
    """

    __slots__ = ("_tail", "end", "full_at", "is_queued", "max_physical", "min_offset", "next_offset", "revision",
                 "tail_start")  # fmt: skip

    end: int
    next_offset: int
    max_physical: int
    min_offset: int
    tail_start: int
    full_at: int
    is_queued: bool
    revision: int

    def __init__(self) -> None:
        self._tail = bytearray()
        self.revision = 0

    @property
    def tail_size(self) -> int:
        """Bytes of the tail."""
        return len(self._tail)

    def tail_bytes(self, start: int, stop: int, /) -> bytes:
        """A part of the tail."""
        return bytes(self._tail[start:stop])

    def add_to_tail(self, units: bytes | bytearray | memoryview, /) -> None:
        """Put units behind the newest."""
        self._tail += units

    def shorten_tail(self, size: int, /) -> None:
        """Forget all but so many of the newest bytes of the tail."""
        del self._tail[: max(len(self._tail) - size, 0)]

    def cut_tail(self, size: int, /) -> None:
        """Forget all but so many of the oldest bytes of the tail."""
        del self._tail[size:]


class Count:
    """How many times something was done, with how many things, and how large they were together."""

    __slots__ = ("nums", "size", "times")

    times: int
    nums: int
    size: int
