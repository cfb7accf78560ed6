"""Numbering of the topics and queues in the records of a chunk.

Most records go to a plain queue with nothing but a number and a hash, and thousands of them are handled at once.
The others (deferred, of batch topics, with light queues) go to the broker's own ``Dispatcher`` one by one; its
queues here only record what is put into them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.protocol.java import decode_utf8
from orbitmq.store.consumequeue.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue
from orbitmq.store.consumequeue.table import QueueTable
from orbitmq.store.errors import AppendRefusedError
from orbitmq.store.index.record_keys import Prefixes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.protocol.message.record_columns import Flags, Ints, RecordColumns
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.consumequeue.table import Queue

MAX_COMPARED = 64
"""The number of topics up to which all records are compared with each; beyond, every record is looked up."""


class Put(NamedTuple):
    """One unit that was put into a queue."""

    queue: int
    queue_offset: int
    offset: int
    size: int
    tags_code: int
    store_timestamp: int
    messages: int


class _PlainQueue(ConsumeQueue):
    __slots__ = ("number", "puts")
    number: int
    puts: list[Put]

    def put(self, queue_offset: int, offset: int, size: int, tags_code: int) -> bool:
        self.puts.append(Put(self.number, queue_offset, offset, size, tags_code, 0, 1))
        return False  # so that nothing is written


class _BatchQueue(BatchConsumeQueue):
    __slots__ = ("number", "puts")
    number: int
    puts: list[Put]

    def put(
        self, queue_offset: int, offset: int, size: int, tags_code: int, store_timestamp: int, count: int
    ) -> bool:
        self.puts.append(Put(self.number, queue_offset, offset, size, tags_code, store_timestamp, count))
        return False


class NotedQueues(QueueTable):
    """Queues that record their units, numbered in order of appearance."""

    def __init__(self, config: StoreConfig, batch_topics: Iterable[str]) -> None:
        super().__init__(LocalDisk(), config)
        self.batch_topics.update(batch_topics)
        self.numbered: list[_PlainQueue | _BatchQueue] = []
        self.puts: list[Put] = []
        """Of records that were not handled all at once."""

    def get(self, name: str, queue_id: int) -> Queue:
        topic = self.topic(name)
        known = topic.queues.get(queue_id)
        if known is not None:
            return known
        plain = super().get(name, queue_id)
        kind = _BatchQueue if isinstance(plain, BatchConsumeQueue) else _PlainQueue
        queue = kind(plain.disk, plain.directory, name, queue_id, plain.file_size)
        queue.number, queue.puts = len(self.numbered), self.puts
        self.numbered.append(queue)
        topic.queues[queue_id] = queue
        return queue

    def number_of(self, name: str, queue_id: int) -> int:
        """The number of a queue; -1 if there can be none."""
        try:
            queue = self.get(name, queue_id)
        except AppendRefusedError:
            return -1
        assert isinstance(queue, _PlainQueue | _BatchQueue)
        return queue.number


@dataclasses.dataclass(slots=True)
class _Topic:
    encoded: bytes
    name: str
    is_alone: bool
    """Whether its records are dispatched one by one."""


class Topics:
    """Topics, numbered in order of appearance."""

    def __init__(self, queues: NotedQueues) -> None:
        self._queues = queues
        self._topics: list[_Topic] = []
        self._numbers: dict[bytes, int] = {}
        self._queue_numbers: dict[int, int] = {}
        self.prefixes: list[Prefixes] = []

    def numbers(self, records: RecordColumns) -> Ints:
        """The topic of each record."""
        numbers = np.full(len(records), -1, np.int64)
        left = np.arange(len(records))
        compared = 0
        while len(left) and compared < MAX_COMPARED:
            if compared == len(self._topics):
                self._number(_topic_at(records, int(left[0])))
            same = _are(records, left, self._topics[compared].encoded)
            numbers[left[same]] = compared
            left = left[~same]
            compared += 1
        for number in left.tolist():
            numbers[number] = self._number(_topic_at(records, number))
        return numbers

    def _number(self, encoded: bytes) -> int:
        number = self._numbers.get(encoded)
        if number is None:
            number = self._numbers[encoded] = len(self._topics)
            name = decode_utf8(encoded)
            try:
                topic = self._queues.topic(name)
                is_alone = topic.is_schedule or topic.is_batch
            except AppendRefusedError:
                is_alone = False
            self._topics.append(_Topic(encoded, name, is_alone))
            self.prefixes.append(Prefixes.of(name))
        return number

    def name(self, number: int) -> str:
        return self._topics[number].name

    def are_alone(self, numbers: Ints) -> Flags:
        """Which topics' records are dispatched one by one."""
        return np.array([topic.is_alone for topic in self._topics], np.bool_)[numbers]

    def have_nul(self, numbers: Ints) -> Flags:
        """Which topics' names have a NUL in them, as only those of torn records do."""
        return np.array([b"\0" in topic.encoded for topic in self._topics], np.bool_)[numbers]

    def queues(self, topic: Ints, queue_id: Ints) -> Ints:
        """The number of each record's queue; -1 where there can be none."""
        pairs, inverse = np.unique(topic << 32 | queue_id & 0xFFFFFFFF, return_inverse=True)
        numbers = np.array([self._queue(pair) for pair in pairs.tolist()], np.int64)
        return numbers[inverse]

    def _queue(self, pair: int) -> int:
        number = self._queue_numbers.get(pair)
        if number is None:
            queue_id = ((pair & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
            number = self._queues.number_of(self._topics[pair >> 32].name, queue_id)
            self._queue_numbers[pair] = number
        return number


def _topic_at(records: RecordColumns, number: int) -> bytes:
    at = int(records.topic_at[number])
    return bytes(records.buffer[at : at + int(records.topic_size[number])])


def _are(records: RecordColumns, which: Ints, topic: bytes) -> Flags:
    """Which of these records are of a topic."""
    same: Flags = records.topic_size[which] == len(topic)
    if topic and bool(same.any()):
        data = records.data
        # Every place of the log as a text of that length. What numpy takes for padding is the same in all of them.
        texts = np.ndarray((len(data) - len(topic) + 1,), f"S{len(topic)}", data, 0, (1,))
        same[same] = texts[records.topic_at[which[same]]] == topic
    return same
