"""Random lives of a store against a simple model: nothing is lost by closing it or by a killed process."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.message.record import decode_record
from orbitmq.store import AppendRefusedError, FlushDiskType, MessageStore, StoredMessage
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import T0, open_small, read_all

TOPICS = ("Alpha", "Beta", "Batched")
BATCHED = "Batched"
"""A topic with ``queue.type=BatchCQ``."""
LIGHT = ("%LMQ%x", "%LMQ%y")

queues = st.tuples(st.sampled_from(TOPICS[:2]), st.integers(0, 2))
sizes = st.sampled_from([0, 1, 30, 200, 700])


@dataclasses.dataclass(slots=True)
class Sent:
    """A message the model knows of."""

    body: bytes
    count: int = 1
    end: int = 0
    """Where its record ends in the log."""


class StoreLife(RuleBasedStateMachine):
    """One store on a disk that keeps what was written, as the machine does when a process is killed."""

    store: MessageStore

    @initialize(
        log_file=st.sampled_from([1024, 2048, 8192]),
        queue_file=st.sampled_from([40, 200, 8000]),
        index_size=st.sampled_from([10, 500]),
        is_sync=st.booleans(),
        pool_size=st.sampled_from([0, 0, 1, 3]),
    )
    def begin(self, log_file: int, queue_file: int, index_size: int, is_sync: bool, pool_size: int) -> None:
        self.clock = ManualClock(T0)
        self.disk = MemoryDisk(clock=self.clock)
        self.settings: dict[str, Any] = {
            "mapped_file_size_commit_log": log_file,
            "mapped_file_size_consume_queue": queue_file,
            "mapper_file_size_batch_consume_queue": 92,
            "max_hash_slot_num": 5,
            "max_index_num": index_size,
            "flush_disk_type": FlushDiskType.SYNC_FLUSH if is_sync else FlushDiskType.ASYNC_FLUSH,
            "transient_store_pool_enable": pool_size > 0,
            "transient_store_pool_size": pool_size,
            "enable_lmq": True,
            "enable_multi_dispatch": True,
        }
        self.model: dict[tuple[str, int], list[Sent]] = {}
        self.keys: dict[str, int] = {}
        self.number = 0
        self.open()

    def open(self) -> None:
        self.store = open_small("/store", disk=self.disk, clock=self.clock, batch_topics=[BATCHED], **self.settings)

    def body(self, size: int) -> bytes:
        self.number += 1
        return (b"%d:" % self.number).ljust(size, b".")

    @rule(queue=queues, size=sizes, light=st.sets(st.sampled_from(LIGHT)))
    def append(self, queue: tuple[str, int], size: int, light: set[str]) -> None:
        sent = Sent(self.body(size))
        properties = {"KEYS": f"k{self.number}", "INNER_MULTI_DISPATCH": ",".join(sorted(light))}
        try:
            appended = self.store.append(StoredMessage(*queue, sent.body, encode(properties)))
        except AppendRefusedError:
            assert size + 250 > self.store.log.file_size
            return
        assert appended.queue_offset == len(self.model.get(queue, []))
        sent.end = appended.offset + appended.size
        for key in (queue, *((name, 0) for name in light)):
            self.model.setdefault(key, []).append(sent)
        self.keys[f"k{self.number}"] = appended.offset

    @rule(queue=queues, count=st.integers(1, 5), size=sizes)
    def append_batch(self, queue: tuple[str, int], count: int, size: int) -> None:
        batch = [Sent(self.body(size)) for _ in range(count)]
        try:
            results = self.store.append_batch(
                StoredMessage(*queue, encode_batch((0, sent.body, b"") for sent in batch))
            )
        except AppendRefusedError:
            assert count * (size + 120) > self.store.log.file_size
            return
        for sent, appended in zip(batch, results, strict=True):
            assert appended.queue_offset == len(self.model.get(queue, []))
            sent.end = appended.offset + appended.size
            self.model.setdefault(queue, []).append(sent)

    @rule(queue_id=st.integers(0, 1), count=st.integers(1, 5))
    def append_inner_batch(self, queue_id: int, count: int) -> None:
        sent = Sent(encode_batch([(0, self.body(10), b"")] * count), count)
        known = self.model.setdefault((BATCHED, queue_id), [])
        appended = self.store.append_inner_batch(StoredMessage(BATCHED, queue_id, sent.body))
        assert appended.queue_offset == sum(one.count for one in known)
        sent.end = appended.offset + appended.size
        known.append(sent)

    @rule(ms=st.sampled_from([0, 1, 2000, 10_000]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def flush(self) -> None:
        assert self.store.flush() == self.store.log.committed

    @rule()
    def commit(self) -> None:
        assert self.store.log.commit() == self.store.log.end
        self.store.catch_up()

    @rule()
    def sync_queues(self) -> None:
        self.store.sync_queues()

    @rule()
    def make_the_next_file_ahead(self) -> None:
        create = self.store.log.wants_next_file()
        if create is not None:
            self.store.log.keep_next_file(create())

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.open()
        assert self.store.recovery.clean
        self.check_everything()

    @rule(is_cleaned_up=st.booleans())
    def kill_and_open(self, is_cleaned_up: bool) -> None:
        reached = self.store.log.committed
        if is_cleaned_up:
            self.store.abandon()
        else:
            self.disk = self.disk.kill()
        for sent in self.model.values():
            # Only what a transient pool holds back dies with the process.
            sent[:] = [one for one in sent if one.end <= reached]
        self.keys = {key: offset for key, offset in self.keys.items() if offset < reached}
        self.open()
        assert not self.store.recovery.clean
        self.check_everything()

    @invariant()
    def readers_see_a_prefix_without_gaps(self) -> None:
        if self.settings["transient_store_pool_enable"]:
            self.store.catch_up()  # a pool that was full was committed by an append
        for (topic, queue_id), sent in self.model.items():
            found = read_all(self.store, topic, queue_id)
            assert [record.body for record in found] == [one.body for one in sent[: len(found)]]
            visible = [one for one in sent if one.end <= self.store.visible_end]
            assert len(found) == len(visible)
            assert self.store.max_offset(topic, queue_id) == sum(one.count for one in visible)

    def check_everything(self) -> None:
        store = self.store
        assert store.visible_end == store.log.end
        held = {
            (queue.topic, queue.queue_id): queue.next_offset for queue in store.queues.all() if queue.next_offset
        }
        assert held == {key: sum(one.count for one in sent) for key, sent in self.model.items() if sent}
        for key, offset in self.keys.items():
            found = [decode_record(record) for topic in TOPICS for record in store.query(topic, key).records]
            assert offset in [record.physical_offset for record in found]

    def teardown(self) -> None:
        if hasattr(self, "store") and self.store.is_open:
            self.store.close()


StoreLife.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestStoreLife = StoreLife.TestCase
