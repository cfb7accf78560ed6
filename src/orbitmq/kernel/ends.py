"""What is known of a queue without its files, and what was counted for it: the plain twins of the kernel's types.

They hold numbers and nothing else. Classes are made on them whose objects the kernel reads and changes itself,
where it was built; where not, these take the same place.
"""

from __future__ import annotations


class QueueEnd:
    """The end of a queue.

    ``next_offset`` is what the next append gets; ``end`` is what readers see. They differ while records wait to
    become visible. ``min_offset`` is the smallest offset that can be read, ``max_physical`` where the last record
    of the queue ends in the commit log. ``tail`` are the newest units, from number ``tail_start`` on.
    ``is_queued``: its owner has noted that there is something to write or sync.
    """

    __slots__ = ("end", "is_queued", "max_physical", "min_offset", "next_offset", "tail", "tail_start")

    end: int
    next_offset: int
    max_physical: int
    min_offset: int
    tail: bytearray
    tail_start: int
    is_queued: bool


class Count:
    """How many times something was done, with how many things, and how large they were together."""

    __slots__ = ("nums", "size", "times")

    times: int
    nums: int
    size: int
