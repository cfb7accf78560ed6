"""Deterministic message ids, by which a retried task finds what an earlier attempt has written.

A chunk is known by a digest of the write (a streaming query and its batch, or a batch job), the partition, its
place among the chunks of the task, where it goes, and *what is in it*. The last is what makes skipping safe: a task
whose rows come in another order, or split differently, has other chunks, which are not written yet.

A message's id (``UNIQ_KEY``) has the form of a Java client's: ten bytes of that digest, four of zero where Java
keeps the time, and two for the place of the row in its chunk, as 32 characters of upper-case hex.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from orbitmq.protocol.bodies import MessageQueue

ID_SIZE = 32
DIGEST_SIZE = 10
"""Bytes of a digest: with 2**40 chunks in a topic, one look-up in 2**40 would find a wrong one."""

NO_TIME = b"00000000"
"""In the place of the time. Java's tools take it for the first of the month, and look from there on."""

MARK = "ORBITMQ_ROW_ID"
"""The property with the made id of a message that has an id of its own and is looked for by an attempt."""


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """The identity of the writing task."""

    write_id: str
    """The id of the streaming query, or of the batch write."""
    batch_id: str | None = None
    """Of a streaming query."""
    partition: int = 0
    attempt: int = 0
    """Not part of any id: another attempt has to make the same ones."""

    @property
    def start(self) -> int:
        """The queue to begin with, so that not all tasks begin with the same one."""
        return int.from_bytes(hashlib.sha256(self._text()).digest()[:4], "big")

    def digest(self, number: int, topic: str, queue: MessageQueue | None, content: memoryview) -> bytes:
        """The digest that identifies a chunk. ``content`` has zeros in place of generated ids."""
        where = None if queue is None else [queue.broker_name, queue.queue_id]
        # JSON ends by itself, so no two different heads can run into equal bytes with their contents.
        hashed = hashlib.sha256(self._text() + json.dumps([number, topic, where]).encode())
        hashed.update(content)
        return hashed.digest()[:DIGEST_SIZE]

    def _text(self) -> bytes:
        return json.dumps([self.write_id, self.batch_id, self.partition]).encode()


def made_id(digest: bytes, row: int) -> bytes:
    """The id of one row of a chunk."""
    return digest.hex().upper().encode() + NO_TIME + b"%04X" % row


def made_ids(digest: bytes, rows: int) -> npt.NDArray[np.uint8]:
    """The ids of all rows of a chunk, one line of characters each."""
    ids = np.empty((rows, ID_SIZE), np.uint8)
    ids[:, :-4] = np.frombuffer(digest.hex().upper().encode() + NO_TIME, np.uint8)
    ids[:, -4:] = _places()[:rows]
    return ids


@functools.cache
def _places() -> npt.NDArray[np.uint8]:
    """Numbers of two bytes in hex, one line of characters each."""
    return np.frombuffer(b"".join([b"%04X" % row for row in range(1 << 16)]), np.uint8).reshape(-1, 4)
