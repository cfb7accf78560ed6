"""The life of a store on a failing disk, from a seed: appends, flushes, deletions, retention, cuts, recoveries.

Beside the store, a model remembers what was appended and what was acknowledged. After every recovery the store is
held against it: nothing acknowledged is missing, and whatever is served is whole and was really appended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import decode_record, iter_records
from orbitmq.store import FlushDiskType, GetStatus, MessageStore, StoreConfig, StoredMessage, StoreError
from orbitmq.store.consumequeue.flush import QueueFlush
from orbitmq.store.retention.retention import Retention
from orbitmq.testing.simulation.clock import ManualClock
from orbitmq.testing.simulation.disk import MemoryDisk, PowerCut

if TYPE_CHECKING:
    from collections.abc import Callable

START_MS = 1_700_000_000_000
TOPICS = ("orders", "payments", "clicks")
QUEUES = 3
MEMORY = 1 << 20


@dataclasses.dataclass(slots=True)
class Sent:
    """A message the model knows of."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    end: int = 0
    """Where its record ends in the log; 0 if the append was cut off."""


class StoreLife:
    """One store through many power cuts."""

    def __init__(self, seed: int, *, sync_flush: bool = True) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(START_MS)
        self.disk = MemoryDisk(seed, clock=self.clock)
        self.disk.short_writes(self.rng.choice((0.0, 0.2)))
        self.config = StoreConfig(
            store_path_root_dir="store",
            mapped_file_size_commit_log=self.rng.choice((4096, 12288, 40960)),
            mapped_file_size_consume_queue=self.rng.choice((100, 400, 8000)),
            max_hash_slot_num=self.rng.choice((7, 50)),
            max_index_num=self.rng.choice((20, 200)),
            flush_disk_type=FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH,
            file_reserved_time=1,
            delete_when="00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
        )
        self.store: MessageStore
        self.sent: dict[bytes, Sent] = {}
        self.unacknowledged: list[Sent] = []
        self.acknowledged: list[Sent] = []
        self.number = 0
        self.cuts = 0
        self.deleted: set[bytes] = set()
        """Bodies of messages whose topic was deleted after them."""

    # What happens

    def live(self, cuts: int) -> None:
        """Go on until the power was cut this many times and every recovery was checked."""
        self._open()
        while self.cuts < cuts:
            self.disk.crash_after(self.rng.randrange(1, self.rng.choice((10, 60, 300))))
            try:
                while True:
                    self._step()
            except PowerCut:
                self._cut()
            while True:
                try:
                    if self.rng.random() < 0.3:
                        self.disk.crash_after(self.rng.randrange(1, 60))
                    self._open()
                    self.disk.heal()
                    break
                except PowerCut:
                    self._cut()
            self.check()
        self.store.close()
        self._open()
        assert self.store.recovery.clean
        self.check()
        self.store.close()

    def _open(self) -> None:
        self.store = MessageStore.open(self.config, disk=self.disk, clock=self.clock, memory_size=MEMORY)

    def _cut(self) -> None:
        self.disk = self.disk.power_cut()
        self.cuts += 1
        self.unacknowledged.clear()

    def _step(self) -> None:
        steps: list[tuple[Callable[[], None], int]] = [
            (self._append, 60),
            (self._append_batch, 8),
            (self._flush, 15),
            (self._sync_queues, 2),
            (self._sync_in_slices, 2),
            (self._retain, 2),
            (self._reopen, 1),
            (self._delete_topic, 1),
            (self._pass_time, 10),
        ]
        actions, weights = zip(*steps, strict=True)
        self.rng.choices(actions, weights)[0]()

    def _message(self) -> Sent:
        self.number += 1
        size = self.rng.choice((0, 10, 100, 600, 1500))
        body = b"%d:" % self.number + self.rng.randbytes(self.rng.randrange(size + 1))
        properties = {"UNIQ_KEY": f"ID{self.number}", "TAGS": self.rng.choice(("a", "b"))}
        if self.rng.random() < 0.3:
            properties["long"] = "v" * self.rng.randrange(1, 1200)
        sent = Sent(self.rng.choice(TOPICS), self.rng.randrange(QUEUES), body, encode(properties))
        self.sent[body] = sent
        return sent

    def _append(self) -> None:
        sent = self._message()
        appended = self.store.append(StoredMessage(sent.topic, sent.queue_id, sent.body, sent.properties))
        sent.end = appended.offset + appended.size
        self.unacknowledged.append(sent)

    def _append_batch(self) -> None:
        first = self._message()
        batch = [first]
        for _ in range(self.rng.randrange(3)):
            other = self._message()
            other.topic, other.queue_id = first.topic, first.queue_id
            batch.append(other)
        items = [(0, sent.body, sent.properties) for sent in batch]
        try:
            results = self.store.append_batch(StoredMessage(first.topic, first.queue_id, encode_batch(items)))
        except StoreError:
            return  # larger than a log file
        for sent, appended in zip(batch, results, strict=True):
            sent.end = appended.offset + appended.size
            self.unacknowledged.append(sent)

    def _flush(self) -> None:
        flushed = self.store.flush()
        self.acknowledged += [sent for sent in self.unacknowledged if sent.end <= flushed]
        self.unacknowledged = [sent for sent in self.unacknowledged if sent.end > flushed]

    def _sync_queues(self) -> None:
        self.store.sync_queues()

    def _sync_in_slices(self) -> None:
        """As a running store does it: others have their turns between the queues."""
        others = (self._append, self._append_batch, self._flush, self._retain, self._pass_time)
        sync = QueueFlush(self.store)
        with contextlib.closing(sync.writing(lambda: self.rng.random() < 0.5)) as slices:
            for _ in slices:
                self.rng.choice(others)()
        try:
            self._flush()
            sync.run()
        except (OSError, StoreError):
            sync.undo()
            raise
        sync.finish()
        self.store.store_checkpoint()

    def _retain(self) -> None:
        Retention(self.store).run()

    def _reopen(self) -> None:
        self.store.close()
        self.acknowledged += self.unacknowledged
        self.unacknowledged.clear()
        self._open()

    def _delete_topic(self) -> None:
        """Once it returns the messages are gone for good; if it is cut off they may be there or not."""
        topic = self.rng.choice(TOPICS)
        gone = {body for body, sent in self.sent.items() if sent.topic == topic}
        self.acknowledged = [sent for sent in self.acknowledged if sent.topic != topic]
        self.unacknowledged = [sent for sent in self.unacknowledged if sent.topic != topic]
        self.store.delete_topic(topic)
        self.deleted |= gone

    def _pass_time(self) -> None:
        self.clock.advance(self.rng.choice((0, 1, 50, 5000, 600_000)))

    # What must hold

    def check(self) -> None:
        """Hold the store against the model."""
        store = self.store
        store.flush()
        served: dict[bytes, int] = {}
        self._check_queues(served)
        for sent in self.acknowledged:
            if sent.end <= store.log.start:
                continue  # expired
            assert sent.body in served, f"an acknowledged message is missing: {sent}"
            self._check_key(sent)

    def _check_queues(self, served: dict[bytes, int]) -> None:
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                self._check_queue(topic, queue_id, served)

    def _check_queue(self, topic: str, queue_id: int, served: dict[bytes, int]) -> None:
        store = self.store
        offset = store.min_offset(topic, queue_id)
        last_end = 0
        while offset < store.max_offset(topic, queue_id):
            result = store.get(topic, queue_id, offset)
            assert result.status in {GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.NO_MATCHED_MESSAGE}
            assert result.next_begin_offset > offset
            for piece in result.slices:
                for record in iter_records(piece):
                    assert record.body_is_intact
                    sent = self.sent[record.body]
                    assert (record.topic, record.queue_id) == (topic, queue_id) == (sent.topic, sent.queue_id)
                    assert record.properties == sent.properties, "a record is served half"
                    assert record.physical_offset >= last_end
                    assert offset <= record.queue_offset < result.next_begin_offset
                    assert record.body not in served, "a message is served twice"
                    assert record.body not in self.deleted, "a message of a deleted topic is served"
                    served[record.body] = record.physical_offset
                    last_end = record.physical_offset + record.size
            offset = result.next_begin_offset

    def _check_key(self, sent: Sent) -> None:
        key = parse(sent.properties)["UNIQ_KEY"]
        bodies = [decode_record(found).body for found in self.store.query(sent.topic, key).records]
        assert sent.body in bodies, f"an acknowledged message is not found by its key {key}"
