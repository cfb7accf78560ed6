"""Queues of a route: their numbers and permissions, and the queue of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.java import string_hash
from orbitmq.protocol.message.flags import PERM_READ, PERM_WRITE
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.protocol.bodies import QueueData

ACCEPTED_TYPES: dict[str, tuple[pb.MessageType, ...]] = {
    "NORMAL": (pb.NORMAL,),
    "FIFO": (pb.FIFO,),
    "DELAY": (pb.DELAY,),
    "TRANSACTION": (pb.TRANSACTION,),
    "LITE": (pb.LITE,),
    "PRIORITY": (pb.PRIORITY,),
    "MIXED": (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION),
}

_MULTIPLIER = 2862933555777941757
_64_BITS = (1 << 64) - 1


def numbered(data: QueueData) -> Iterator[tuple[int, int]]:
    """The permission of each queue with its number: readable ones first, then writable ones, then both."""
    reads = data.read_queue_nums if data.perm & PERM_READ else 0
    writes = data.write_queue_nums if data.perm & PERM_WRITE else 0
    both = min(reads, writes)
    permissions = [pb.READ] * (reads - both) + [pb.WRITE] * (writes - both) + [pb.READ_WRITE] * both
    if not data.perm & (PERM_READ | PERM_WRITE):
        permissions = [pb.NONE] * max(1, data.read_queue_nums, data.write_queue_nums)
    return iter(enumerate(permissions))


def queue_for_group(message_group: str, queues: list[tuple[str, int]]) -> tuple[str, int]:
    """The queue of a message group. Raises StatusError."""
    return queues[consistent_hash(string_hash(message_group), len(queues))] if queues else refuse_write()


def refuse_write() -> tuple[str, int]:
    raise StatusError(pb.FORBIDDEN, "no writable queue")


def consistent_hash(value: int, buckets: int) -> int:
    """Jump consistent hash, as Guava computes it."""
    state = value & _64_BITS
    candidate = 0
    while True:
        state = (state * _MULTIPLIER + 1) & _64_BITS
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
