"""The life of popped messages on a failing disk, from a seed: pops, acknowledgements, time, power cuts, recoveries.

Beside the broker's parts a model remembers what clients know. A message whose send was acknowledged is consumed in
the end, however often it was handed out and lost. What a consumer was told to be acknowledged in time never comes
again; that is counted by the check points in the log, of which each hands out a message once.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from typing import TYPE_CHECKING, Any, cast

from client_ends import run_here
from nameserver_ends import as_text
from orbitmq.broker.clients import Clients
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.config_writer import ConfigWriter
from orbitmq.broker.filter_data import FilterData
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.pop_service import PopService
from orbitmq.broker.registration import Registration
from orbitmq.broker.stats import BrokerStats
from orbitmq.broker.timer import TimerService
from orbitmq.broker.timer_counts import TimerCounts
from orbitmq.broker.topics import TopicTable
from orbitmq.protocol.bodies import PopCheckPoint, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.pop import pop_retry_topic
from orbitmq.protocol.properties import encode, parse
from orbitmq.protocol.record import iter_records
from orbitmq.store import FlushDiskType, MessageStore, StoreConfig
from orbitmq.store.config_json import CONSUMER_OFFSETS, TOPICS
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.disk import MemoryDisk, PowerCut
from pop_ends import BROKER, Got, got_by, pop_fields
from remoting_ends import decoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from orbitmq.broker.flushed_answers import FlushedAnswers
    from orbitmq.protocol.header import Header
    from orbitmq.protocol.record import Record
    from orbitmq.remoting import Connection
    from orbitmq.store.service import StoreService

START_MS = 1_700_000_000_000
TOPIC = "orders"
GROUP = "workers"
QUEUES = 2
MEMORY = 1 << 20
MOST_ROUNDS = 60
ROUND_MS = 8000

HEARD = b"acknowledged"

Copy = tuple[str, int, int]
"""Topic, queue and offset of a message: each time that it comes again it is another one."""

Pop = tuple[Copy, int, int]
"""A message in one pop of it: the time of the pop, and where its check point begins."""


class Worker:
    """The other end of a consumer's connection: it keeps what it is answered."""

    is_closing = False
    remote_address = "worker"

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def answer(self, _header: Header, data: bytes) -> None:
        self.answers.append(data)


class OfStore:
    """What POP has of the store's service, with the waiting done at once."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store

    async def flushed(self, end: int) -> None:
        if self.store.log.flushed < end:
            self.store.flush()


class AfterFlush:
    """Answers that wait until what they say is on the disk."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.waiting: list[tuple[int, Worker, Header, bytes]] = []

    def wait(self, connection: Worker, header: Header, answer: bytes, _late_code: int | None = None) -> None:
        self.waiting.append((self.store.log.end, connection, header, answer))

    def settle(self) -> None:
        flushed = self.store.log.flushed
        for end, connection, header, answer in self.waiting:
            if end <= flushed:
                connection.answer(header, answer)
        self.waiting = [one for one in self.waiting if one[0] > flushed]


class PopLife:
    """A broker's pops through many crashes: power cuts if ``is_power``, otherwise kills."""

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
        """Bodies of messages that nobody was told about yet, and where in the log they end."""
        self.acknowledged: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self.settled: set[Pop] = set()
        """What consumers were told to have acknowledged in time."""
        self.unheard: list[tuple[int, Pop]] = []
        """Acknowledgements that are answered when the log is on the disk up to an offset."""
        self.held: list[Got] = []
        self.crashes = 0
        self.store: MessageStore

    # What happens

    async def live(self, crashes: int) -> None:
        """Go on until it crashed so often; then let everything come to its end, and check that."""
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
        self.of_store = OfStore(store)
        self.after_flush = AfterFlush(store)
        stats = BrokerStats(clock, "DefaultCluster")
        self.timer = TimerService(store, clock, stats, self.of_store.flushed, run_here, TimerCounts(writer, clock))
        self.timer.load()
        self.pop = PopService(
            config,
            cast("StoreService", self.of_store),
            self.topics,
            groups,
            self.offsets,
            Clients(config, clock, FilterData(writer, config, clock)),
            Registration(config, self.topics, clock),
            self.timer,
            writer,
            cast("FlushedAnswers", self.after_flush),
            stats,
            clock,
        )
        self.pop.load()
        self.writer = writer
        self.worker = Worker()

    async def _crash(self) -> None:
        with contextlib.suppress(PowerCut):
            await self.writer.stop()
        self.disk = self.disk.power_cut() if self.is_power else self.disk.kill()
        # No broker is back in the same millisecond; pops are told apart by their times.
        self.clock.advance(1)
        self.crashes += 1
        self.held.clear()
        self.sent.clear()
        self.unheard.clear()
        # What else went on by itself has ended with it.
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
        # Raises PowerCut also if what went on by itself met the end: nobody is told anything after that.
        self.disk.stat("store")
        self._hear()

    async def _send(self) -> None:
        self.count += 1
        body = b"%d" % self.count + b"." * self.rng.choice((0, 10, 500))
        properties = encode({"UNIQ_KEY": f"K{self.count}", "TAGS": "t"})
        appended = self.store.append(TOPIC, self.rng.randrange(QUEUES), body, properties)
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
        """The work is done, so the message is consumed, whatever becomes of its acknowledgement."""
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
        while self.timer.turn() <= self.clock.now_ms():
            pass
        if self.rng.random() < 0.7:
            self.store.flush()
        while not self.pop.revive.turn():
            pass

    async def _persist(self) -> None:
        """As the service does it: what positions rest on first, then the positions."""
        table = self.offsets.take_changed()
        if table is not None:
            assert self.pop.journal is not None
            await self.of_store.flushed(self.pop.journal.end)
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
        """Clients hear of what is as safe as they want it."""
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

    # What must hold

    async def come_to_an_end(self) -> None:
        """Everything that comes is acknowledged, until nothing comes any more."""
        self.disk.heal()
        quiet = 0
        for _ in range(MOST_ROUNDS):
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
        raise AssertionError("messages come for ever")

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
        # Of what was settled each time nothing came; of the rest everything did, once if nothing was repeated.
        assert not came.keys() - open_pops.keys(), "acknowledged messages came again"
        if not self.crashes and not self.restarts:
            assert came <= open_pops

    def handed_out(self) -> Iterator[Pop]:
        """What check points say, of pops that somebody heard of and of others."""
        assert self.pop.journal is not None
        records = list(self.records(TIMER_TOPIC, 0))
        for queue_id in range(self.config.revive_queue_num):
            # Those that were not in the timer before: they were due when they were written.
            found = self.records(self.pop.journal.revive_topic, queue_id)
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
