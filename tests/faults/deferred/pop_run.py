"""POP run: popped messages on a failing disk, from a seed: pops, acks, time, power failures, recoveries.

A model beside the broker records what clients know. A message whose send was acknowledged is consumed eventually,
however often it was popped and lost. A message whose ack was confirmed in time is never redelivered; this is
counted by the checkpoints in the log, each of which redelivers a message once.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from typing import TYPE_CHECKING, Any, cast

from orbitmq.broker.clients.consumer_filters import ConsumerFilters
from orbitmq.broker.clients.registry import Clients
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.metadata.subscription_groups import GroupTable
from orbitmq.broker.metadata.topics import TopicTable
from orbitmq.broker.offsets.table import OffsetTable
from orbitmq.broker.pop.service import PopService
from orbitmq.broker.registration.registrar import Registration
from orbitmq.broker.runtime import Metadata
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.timer.counts import TimerCounts
from orbitmq.broker.timer.service import TimerService
from orbitmq.protocol.bodies import PopCheckPoint, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import FlushDiskType, MessageStore, StoreConfig, StoredMessage
from orbitmq.store.config_tables import CONSUMER_OFFSETS, TOPICS
from orbitmq.testing.simulation.clock import ManualClock
from orbitmq.testing.simulation.disk import MemoryDisk, PowerCut
from support.broker.client_registry_harness import run_here
from support.broker.pop_harness import BROKER, Got, got_by, pop_fields
from support.broker.runtimes import runtime_of
from support.nameserver_harness import as_text
from support.remoting_harness import decoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from orbitmq.protocol.command.header import Header
    from orbitmq.protocol.message.record import Record
    from orbitmq.remoting import Connection

START_MS = 1_700_000_000_000
TOPIC = "orders"
GROUP = "workers"
QUEUES = 2
MEMORY = 1 << 20
MAX_ROUNDS = 60
ROUND_MS = 8000

HEARD = b"acknowledged"

Copy = tuple[str, int, int]
"""Topic, queue and offset of a message: each redelivery is a new copy."""

Pop = tuple[Copy, int, int]
"""One pop of a message: pop time and start offset of its checkpoint."""


class Worker:
    """The peer of a consumer's connection, which records responses."""

    is_closing = False
    remote_address = "worker"

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def answer(self, _header: Header, data: bytes) -> None:
        self.answers.append(data)


class AfterFlush:
    """Responses that wait for a flush."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.waiting: list[tuple[int, Worker, Header, bytes]] = []

    def respond(self, connection: Worker, header: Header, answer: bytes) -> bytes | None:
        if self.store.config.flush_disk_type is FlushDiskType.ASYNC_FLUSH:
            return answer
        self.waiting.append((self.store.log.end, connection, header, answer))
        return None

    def settle(self) -> None:
        flushed = self.store.log.flushed
        for end, connection, header, answer in self.waiting:
            if end <= flushed:
                connection.answer(header, answer)
        self.waiting = [one for one in self.waiting if one[0] > flushed]


class PopLife:
    """The POP services of a broker over many crashes: power failures if ``is_power``, else kills."""

    def __init__(self, seed: int, *, is_power: bool, restarts: bool = True) -> None:
        self.rng = random.Random(seed)
        self.is_power = is_power
        self.restarts = restarts
        self.clock = ManualClock(START_MS)
        self.disk = MemoryDisk(seed, clock=self.clock)
        self.store_config = StoreConfig(
            store_path_root_dir="store",
            mapped_file_size_commit_log=self.rng.choice((12_288, 40_960)),
            mapped_file_size_consume_queue=self.rng.choice((100, 400, 8000)),
            max_index_num=200,
            mapped_file_size_timer_log=self.rng.choice((512, 4096)),
            flush_disk_type=FlushDiskType.SYNC_FLUSH if is_power else FlushDiskType.ASYNC_FLUSH,
            file_reserved_time=10_000,
        )
        self.config = BrokerConfig(broker_name=BROKER, revive_queue_num=3)
        self.count = 0
        self.sent: dict[bytes, int] = {}
        """Bodies of unacknowledged sends, with their end offsets in the log."""
        self.acknowledged: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self.settled: set[Pop] = set()
        """Pops whose acks were confirmed in time."""
        self.unheard: list[tuple[int, Pop]] = []
        """Acks whose responses wait for a flush up to an offset."""
        self.held: list[Got] = []
        self.crashes = 0
        self.store: MessageStore

    # Actions

    async def live(self, crashes: int) -> None:
        """Run until so many crashes happened; then finish everything and check."""
        await self._open()
        while self.crashes < crashes:
            self.disk.crash_after(self.rng.randrange(1, self.rng.choice((10, 60, 300))))
            try:
                for _ in range(400):
                    await self.step()
                raise PowerCut
            except PowerCut:
                await self._crash()
            while True:
                try:
                    if self.rng.random() < 0.3:
                        self.disk.crash_after(self.rng.randrange(1, 60))
                    await self._open()
                    self.disk.heal()
                    break
                except PowerCut:
                    await self._crash()
        await self.come_to_an_end()
        self.check()
        await self.stop()

    async def _open(self) -> None:
        clock, disk, config = self.clock, self.disk, self.config
        writer = ConfigWriter(disk, self.store_config.path("config"), run_here)
        self.offsets = OffsetTable(writer, clock)
        self.offsets.load()
        self.topics = TopicTable(writer, config, clock)
        self.topics.load()
        self.topics.configs.setdefault(TOPIC, TopicConfig(TOPIC, QUEUES, QUEUES, 6))
        groups = GroupTable(writer, config, clock)
        self.store = store = MessageStore.open(self.store_config, disk=disk, clock=clock, memory_size=MEMORY)
        self.after_flush = AfterFlush(store)
        stats = BrokerStats(clock, "DefaultCluster")
        runtime = runtime_of(
            store, writer, stats, config=config, flushed=self._flushed, flush_waiters=self.after_flush
        )
        self.timer = TimerService(runtime, run_here, TimerCounts(writer, clock))
        self.timer.load()
        filters = ConsumerFilters(writer, config, clock)
        metadata = Metadata(self.topics, groups, self.offsets, filters)
        clients = Clients(config, clock, filters)
        self.pop = PopService(runtime, metadata, clients, Registration(config, self.topics, clock), self.timer)
        self.pop.load()
        self.writer = writer
        self.worker = Worker()

    async def _flushed(self, end: int) -> None:
        if self.store.log.flushed < end:
            self.store.flush()

    async def _crash(self) -> None:
        with contextlib.suppress(PowerCut):
            await self.writer.stop()
        self.disk = self.disk.power_cut() if self.is_power else self.disk.kill()
        # No broker restarts in the same millisecond; pops are distinguished by their times.
        self.clock.advance(1)
        self.crashes += 1
        self.held.clear()
        self.sent.clear()
        self.unheard.clear()
        # Background tasks end with the crash.
        for _ in range(3):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        await self.timer.stop()
        await self._persist()
        await self.writer.stop()
        self.store.close()

    async def step(self) -> None:
        steps: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._send, 30),
            (self._pop, 25),
            (self._ack, 35),
            (self._hide, 6),
            (self._flush, 15),
            (self._pass_time, 12),
            (self._persist, 5),
            (self._save_timer, 4),
            (self._sync_queues, 2),
            (self._reopen, int(self.restarts)),
        ]
        actions, weights = zip(*steps, strict=True)
        await self.rng.choices(actions, weights)[0]()
        # Raises PowerCut also if a background task crashed: no client gets a response after that.
        self.disk.stat("store")
        self._hear()

    async def _send(self) -> None:
        self.count += 1
        body = b"%d" % self.count + b"." * self.rng.choice((0, 10, 500))
        properties = encode({"UNIQ_KEY": f"K{self.count}", "TAGS": "t"})
        appended = self.store.append(StoredMessage(TOPIC, self.rng.randrange(QUEUES), body, properties))
        self.sent[body] = appended.offset + appended.size

    def _ask(self, code: int, fields: dict[str, Any]) -> None:
        request = Command(code, 1, ext_fields=as_text(fields))
        answer = self.pop.handlers[code](cast("Connection", self.worker), request.header, b"", 0)
        if isinstance(answer, bytes):
            self.worker.answers.append(answer)

    async def _pop(self) -> None:
        invisible = self.rng.choice((3000, 6000, 15_000))
        most = self.rng.choice((1, 4, 32))
        self._ask(RequestCode.POP_MESSAGE, pop_fields(TOPIC, GROUP, most=most, invisible_ms=invisible))

    async def _ack(self) -> None:
        if self.held:
            got = self.held.pop(self.rng.randrange(len(self.held)))
            if self.rng.random() < 0.8:
                self._settle(got)

    def _settle(self, got: Got) -> None:
        """The message is consumed, whatever the outcome of its ack."""
        self.consumed.add(got.body)
        waiting = len(self.after_flush.waiting)
        is_in_time = self.clock.now_ms() < got.receipt.pop_time + got.receipt.invisible_ms
        copy = got.topic, got.receipt.queue_id, got.receipt.offset
        settled = copy, got.receipt.pop_time, got.receipt.start_offset
        self._ask(RequestCode.ACK_MESSAGE, _named(got))
        if len(self.after_flush.waiting) > waiting:
            end, worker, header, _ = self.after_flush.waiting.pop()
            self.after_flush.waiting.append((end, worker, header, HEARD))
            if is_in_time:
                self.unheard.append((end, settled))
            return
        (answered,) = decoded(self.worker.answers.pop())
        assert answered.code == ResponseCode.SUCCESS, answered.remark
        if is_in_time:
            self.settled.add(settled)

    async def _hide(self) -> None:
        if self.held:
            got = self.held.pop(self.rng.randrange(len(self.held)))
            fields = {**_named(got), "invisibleTime": self.rng.choice((1000, 10_000))}
            self._ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
            self.worker.answers = [answer for answer in self.worker.answers if b"msgOffsetInfo" in answer]
            self.after_flush.waiting = [one for one in self.after_flush.waiting if b"msgOffsetInfo" in one[3]]

    async def _flush(self) -> None:
        self.store.flush()

    async def _pass_time(self) -> None:
        for _ in range(self.rng.choice((1, 3, 6))):
            self.clock.advance(1000)
            self._work()

    def _work(self) -> None:
        assert self.pop.revive is not None
        while self.timer.run_slice() <= self.clock.now_ms():
            pass
        if self.rng.random() < 0.7:
            self.store.flush()
        while not self.pop.revive.turn():
            pass

    async def _persist(self) -> None:
        """Persist like the service: first what the offsets depend on, then the offsets."""
        table = await self.offsets.take_changed()
        if table is not None:
            assert self.pop.checkpoints is not None
            await self._flushed(self.pop.checkpoints.end)
            CONSUMER_OFFSETS.persist(self.disk, self.store_config.path("config"), table)
        TOPICS.persist(self.disk, self.store_config.path("config"), self.topics._wrapped())

    async def _save_timer(self) -> None:
        await self.timer._save()

    async def _sync_queues(self) -> None:
        self.store.sync_queues()

    async def _reopen(self) -> None:
        await self.stop()
        self.disk.stat("store")
        self._hear()
        self.held.clear()
        await self._open()

    def _hear(self) -> None:
        """Deliver responses whose data is durable enough for their clients."""
        safe = self.store.log.flushed if self.is_power else self.store.log.end
        self.acknowledged |= {body for body, end in self.sent.items() if end <= safe}
        self.sent = {body: end for body, end in self.sent.items() if end > safe}
        self.after_flush.settle()
        for answer in self.worker.answers:
            if answer != HEARD:
                (answered,) = decoded(answer)
                self.held += got_by(answered, TOPIC, GROUP)
        self.worker.answers.clear()
        self.settled |= {settled for end, settled in self.unheard if end <= safe}
        self.unheard = [one for one in self.unheard if one[0] > safe]

    # Invariants

    async def come_to_an_end(self) -> None:
        """Ack everything until no more messages are redelivered."""
        self.disk.heal()
        quiet = 0
        for _ in range(MAX_ROUNDS):
            for _ in range(ROUND_MS // 1000):
                self.clock.advance(1000)
                self._work()
            self.store.flush()
            self.held.clear()
            for _ in range(20):
                self._ask(RequestCode.POP_MESSAGE, pop_fields(TOPIC, GROUP, invisible_ms=15_000))
                self.store.flush()
                self._hear()
            for got in self.held:
                self._settle(got)
            self.store.flush()
            self._hear()
            quiet = 0 if self.held else quiet + 1
            if quiet >= 4:
                return
        raise AssertionError("redelivery does not end")

    def records(self, topic: str, queue_id: int) -> Iterator[Record]:
        offset = self.store.min_offset(topic, queue_id)
        while offset < self.store.max_offset(topic, queue_id):
            result = self.store.get(topic, queue_id, offset)
            for piece in result.slices:
                yield from iter_records(bytes(piece))
            offset = result.next_begin_offset

    def check(self) -> None:
        missing = self.acknowledged - self.consumed
        assert not missing, f"never consumed: {sorted(missing)}"
        retry = pop_retry_topic(TOPIC, GROUP)
        copies: dict[Copy, Record] = {}
        for topic, queues in ((TOPIC, QUEUES), (retry, 1)):
            for queue_id in range(queues):
                for record in self.records(topic, queue_id):
                    copies[topic, queue_id, record.queue_offset] = record
        open_pops: collections.Counter[tuple[bytes, int]] = collections.Counter()
        for pop in self.handed_out():
            if pop[0] in copies and pop not in self.settled:
                record = copies[pop[0]]
                open_pops[record.body, record.reconsume_times] += 1
        came: collections.Counter[tuple[bytes, int]] = collections.Counter()
        for (topic, _, _), record in copies.items():
            if topic == retry:
                came[record.body, record.reconsume_times - 1] += 1
        # Acked messages were never redelivered; the others always, once if nothing was repeated.
        assert not came.keys() - open_pops.keys(), "acknowledged messages came again"
        if not self.crashes and not self.restarts:
            assert came <= open_pops

    def handed_out(self) -> Iterator[Pop]:
        """Redeliveries due by checkpoints, of confirmed and other pops."""
        assert self.pop.checkpoints is not None
        records = list(self.records(TIMER_TOPIC, 0))
        for queue_id in range(self.config.revive_queue_num):
            # Those not deferred before: they were due when they were written.
            found = self.records(self.pop.checkpoints.revive_topic, queue_id)
            records += [record for record in found if "TIMER_OUT_MS" not in parse(record.properties)]
        for record in records:
            if parse(record.properties).get("TAGS") == "ck":
                point = PopCheckPoint.decode(record.body)
                for distance in point.queue_offset_diff or ():
                    copy = point.topic, point.queue_id, point.start_offset + distance
                    yield copy, point.pop_time, point.start_offset


def _named(got: Got) -> dict[str, Any]:
    return {
        "consumerGroup": GROUP,
        "topic": got.topic,
        "queueId": got.receipt.queue_id,
        "offset": got.receipt.offset,
        "extraInfo": str(got.receipt),
    }
