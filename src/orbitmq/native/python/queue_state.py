"""Queue state and counters: plain twins of the native types that the compiled code reads and changes itself.

``store.consumequeue.unit_file`` and ``broker.stats.samples`` derive their classes from these.
"""

from __future__ import annotations


class QueueState:
    """In-memory state of a consume queue.

    ``next_offset`` is the queue offset of the next append; ``end`` is what readers see. They differ while records
    wait for their dispatch. ``min_offset`` is the smallest offset that can be read, ``max_physical`` the offset in
    the commit log behind the last record of the queue. The tail is the write buffer: the newest units, from number
    ``tail_start`` on, to be written out at ``full_at`` bytes. ``is_queued``: the owner has recorded that there is
    something to write or sync. ``revision`` changes when units before the tail may have changed.
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
        """Append units to the tail."""
        self._tail += units

    def shorten_tail(self, size: int, /) -> None:
        """Keep only the newest ``size`` bytes of the tail."""
        del self._tail[: max(len(self._tail) - size, 0)]

    def cut_tail(self, size: int, /) -> None:
        """Keep only the oldest ``size`` bytes of the tail."""
        del self._tail[size:]


class Counter:
    """Number of requests (``times``), number of messages in them (``nums``) and their bytes (``size``).

    The others are messages whose records are larger than 1 KiB, 4 KiB and so on.
    """

    __slots__ = ("nums", "over_1k", "over_1m", "over_2m", "over_4k", "over_4m", "over_512k", "size", "times")

    times: int
    nums: int
    size: int
    over_1k: int
    over_4k: int
    over_512k: int
    over_1m: int
    over_2m: int
    over_4m: int
