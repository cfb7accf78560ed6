"""Transaction run: transactions on a failing disk, from a seed: half messages, ends, checks, power failures,
recoveries.

A model beside the broker records what producers know. A message whose half was acknowledged is delivered or not, as
its producer decided, or decides in response to a check; an unacknowledged one is never delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING, Any, cast

from orbitmq.broker.clients.consumer_filters import ConsumerFilters
from orbitmq.broker.clients.registry import Clients
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.metadata.topics import TopicTable
from orbitmq.broker.offsets.table import OffsetTable
from orbitmq.broker.schedule.service import ScheduleService
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.transaction.check_service import TransactionChecks
from orbitmq.broker.transaction.processor import Transactions
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import decode_record, iter_records
from orbitmq.store import FlushDiskType, MessageStore, StoreConfig, StoredMessage
from orbitmq.store.config_tables import CONSUMER_OFFSETS
from orbitmq.testing.simulation.clock import ManualClock
from orbitmq.testing.simulation.disk import MemoryDisk, PowerCut
from support.broker.client_registry_harness import run_here
from support.broker.runtimes import runtime_of
from support.broker.transaction_harness import COMMIT, GROUP, ROLLBACK, UNKNOWN
from support.remoting_harness import decoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.remoting import Connection

START_MS = 1_700_000_000_000
TOPIC = "orders"
QUEUES = 3
MEMORY = 1 << 20
OLD_ENOUGH_MS = 7000
MAX_PASSES = 40


@dataclasses.dataclass(slots=True)
class Sent:
    """A transaction as its producer knows it."""

    body: bytes
    truth: int = ROLLBACK
    """The outcome. There is no local transaction before the half message is acknowledged."""
    queue_offset: int = -1
    physical: int = -1
    log_end: int = 0
    is_acknowledged: bool = False
    is_ended: bool = False


class QuestionedProducer:
    """The peer of a producer's connection, which records checks."""

    is_writable = True
    is_closing = False
    remote_address = "producer"

    def __init__(self) -> None:
        self.questions: list[Command] = []

    def call_oneway(self, command: Command) -> None:
        self.questions.append(command)


class TransactionLife:
    """Transactions of a broker over many crashes: power failures if ``is_power``, else kills."""

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
            flush_disk_type=FlushDiskType.SYNC_FLUSH if is_power else FlushDiskType.ASYNC_FLUSH,
            file_reserved_time=10_000,
        )
        self.config = BrokerConfig(
            transaction_check_max=10**6,
            transaction_op_msg_max_size=self.rng.choice((1, 8, 4096)),
            transaction_op_batch_interval=10**6,
        )
        self.sent: dict[bytes, Sent] = {}
        self.unacknowledged: list[Sent] = []
        self.crashes = 0
        self.store: MessageStore
        self.producer = QuestionedProducer()

    # Actions

    async def live(self, crashes: int) -> None:
        """Run until so many crashes happened; then finish everything and check."""
        await self._open()
        while self.crashes < crashes:
            self.disk.crash_after(self.rng.randrange(1, self.rng.choice((10, 60, 200))))
            try:
                for _ in range(500):
                    await self._step()
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
            self.check_nothing_is_wrong()
        await self._come_to_an_end()
        self.check_nothing_is_missing()
        await self._stop()

    async def _open(self) -> None:
        clock, disk, config = self.clock, self.disk, self.config
        writer = ConfigWriter(disk, self.store_config.path("config"), run_here)
        self.offsets = OffsetTable(writer, clock)
        self.offsets.load()
        topics = TopicTable(writer, config, clock)
        topics.load()
        self.store = store = MessageStore.open(self.store_config, disk=disk, clock=clock, memory_size=MEMORY)
        stats = BrokerStats(clock, "DefaultCluster")
        clients = Clients(config, clock, ConsumerFilters(writer, config, clock))
        clients.producers[GROUP] = cast("dict[Connection, Any]", {self.producer: None})
        runtime = runtime_of(store, writer, stats, config=config, flushed=self._flushed)
        schedule = ScheduleService(runtime)
        self.transactions = transactions = Transactions(runtime, topics, self.offsets, schedule)
        transactions.load()
        self.checks = TransactionChecks(runtime, topics, self.offsets, clients, transactions)

    async def _flushed(self, end: int) -> None:
        if self.store.log.flushed < end:
            self.store.flush()

    async def _crash(self) -> None:
        with contextlib.suppress(PowerCut):
            await self.checks.stop()
        self.disk = self.disk.power_cut() if self.is_power else self.disk.kill()
        self.crashes += 1
        self.unacknowledged.clear()
        self.producer.questions.clear()
        # Background tasks end with the crash.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _stop(self) -> None:
        await self.checks.stop()
        await self._persist()
        self.store.close()

    async def _step(self) -> None:
        steps: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._prepare, 40),
            (self._end_one, 35),
            (self._flush, 15),
            (self._check, 5),
            (self._answer_some, 10),
            (self._write_ops, 4),
            (self._persist, 6),
            (self._sync_queues, 2),
            (self._reopen, int(self.restarts)),
        ]
        actions, weights = zip(*steps, strict=True)
        await self.rng.choices(actions, weights)[0]()
        # Raises PowerCut also if a background task crashed: no client gets a response after that.
        self.disk.stat("store")
        self._acknowledge()

    async def _prepare(self) -> None:
        sent = Sent(b"%d" % len(self.sent) + b"." * self.rng.choice((0, 10, 500)))
        self.sent[sent.body] = sent
        properties = {"UNIQ_KEY": f"K{len(self.sent)}", "TRAN_MSG": "true", "PGROUP": GROUP}
        if self.rng.random() < 0.2:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = "20"
        topic, queue_id, prepared = self.transactions.prepare(
            TOPIC, self.rng.randrange(QUEUES), encode(properties), properties["UNIQ_KEY"].encode()
        )
        appended = self.store.append(
            StoredMessage(topic, queue_id, sent.body, prepared, born_timestamp=self.clock.now_ms())
        )
        sent.queue_offset, sent.physical = appended.queue_offset, appended.offset
        sent.log_end = appended.offset + appended.size
        self.unacknowledged.append(sent)

    def _acknowledge(self) -> None:
        """Acknowledge durable half messages, and run their local transactions."""
        safe = self.store.log.flushed if self.is_power else self.store.log.end
        for sent in self.unacknowledged:
            if sent.log_end <= safe:
                sent.is_acknowledged = True
                sent.truth = self.rng.choice((COMMIT, COMMIT, ROLLBACK))
        self.unacknowledged = [sent for sent in self.unacknowledged if not sent.is_acknowledged]

    async def _end_one(self) -> None:
        open_ones = [sent for sent in self.sent.values() if sent.is_acknowledged and not sent.is_ended]
        if open_ones:
            sent = self.rng.choice(open_ones[-5:])
            sent.is_ended = True
            self._end(sent.queue_offset, sent.physical, sent.truth, from_check=False)

    def _end(self, queue_offset: int, physical: int, how: int, *, from_check: bool) -> None:
        fields = {
            "producerGroup": GROUP,
            "tranStateTableOffset": str(queue_offset),
            "commitLogOffset": str(physical),
            "commitOrRollback": str(how),
            "fromTransactionCheck": "true" if from_check else "false",
            "msgId": "m",
        }
        request = Command(RequestCode.END_TRANSACTION, 1, ext_fields=fields)
        answer = self.transactions.end(cast("Connection", self.producer), request.header, b"", 0)
        if how == UNKNOWN:
            assert answer == b""
            return
        assert isinstance(answer, bytes)
        (answered,) = decoded(answer)
        # Late, or decided by another response of the same producer.
        assert answered.code in {0, 604}, answered.remark

    async def _flush(self) -> None:
        self.store.flush()

    async def _check(self) -> None:
        self.clock.advance(OLD_ENOUGH_MS)
        await self.checks.check()

    async def _answer_some(self) -> None:
        for question in self.producer.questions:
            how = self._truth_of(question)
            self._answer(question, how if self.rng.random() < 0.7 else UNKNOWN)
        self.producer.questions.clear()

    def _truth_of(self, question: Command) -> int:
        return self.sent[decode_record(question.body or b"").body].truth

    def _answer(self, question: Command, how: int) -> None:
        fields = question.ext_fields
        self._end(int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"]), how, from_check=True)

    async def _write_ops(self) -> None:
        await self.transactions.ops.write()

    async def _persist(self) -> None:
        CONSUMER_OFFSETS.persist(self.disk, self.store_config.path("config"), self.offsets.as_body())

    async def _sync_queues(self) -> None:
        self.store.sync_queues()

    async def _reopen(self) -> None:
        await self._stop()
        self.disk.stat("store")
        self._acknowledge()
        self.producer.questions.clear()
        await self._open()

    # Invariants

    async def _come_to_an_end(self) -> None:
        """Respond to every check with the outcome, until there are no more."""
        self.disk.heal()
        for _ in range(MAX_PASSES):
            self.clock.advance(OLD_ENOUGH_MS)
            await self.checks.check()
            for question in self.producer.questions:
                self._answer(question, self._truth_of(question))
            self.producer.questions.clear()
            end = self.store.queues.get("RMQ_SYS_TRANS_HALF_TOPIC", 0).next_offset
            if self.transactions.half_state(0).base == end:
                return
            self.store.flush()
        raise AssertionError("some transactions were not ended")

    def delivered(self) -> list[bytes]:
        found: list[bytes] = []
        for queue_id in range(QUEUES):
            offset = self.store.min_offset(TOPIC, queue_id)
            while offset < self.store.max_offset(TOPIC, queue_id):
                result = self.store.get(TOPIC, queue_id, offset)
                for piece in result.slices:
                    for record in iter_records(bytes(piece)):
                        assert "REAL_TOPIC" not in parse(record.properties)
                        found.append(record.body)
                offset = result.next_begin_offset
        return found

    def check_nothing_is_wrong(self) -> None:
        """Nothing uncommitted is delivered."""
        for body in self.delivered():
            assert self.sent[body].truth == COMMIT, f"{body!r} was not committed"

    def check_nothing_is_missing(self) -> None:
        """Every commit is delivered; once, if there was no crash.

        After a restart a broker does not know the copies of a message that is ended by its first offset.
        """
        self.store.flush()
        self.check_nothing_is_wrong()
        found = self.delivered()
        committed = {body for body, sent in self.sent.items() if sent.truth == COMMIT}
        assert committed <= set(found), f"missing: {sorted(committed - set(found))}"
        if not self.crashes and not self.restarts:
            assert len(found) == len(set(found))
