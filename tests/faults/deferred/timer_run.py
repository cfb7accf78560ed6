"""Timer run: timer messages on a failing disk, from a seed: sends, recalls, crashes, clock changes.

A model beside the store and its timer records what senders know. An acknowledged message is delivered unless its
recall was acknowledged too; none is delivered early. A crash may repeat some.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.timer.counts import TimerCounts
from orbitmq.broker.timer.service import TimerService
from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.message.record import iter_records
from orbitmq.store import FlushDiskType, MessageStore, StoreConfig, StoredMessage
from orbitmq.testing.simulation.clock import ManualClock
from orbitmq.testing.simulation.disk import MemoryDisk, PowerCut
from support.broker.client_registry_harness import run_here
from support.broker.runtimes import runtime_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

START_MS = 1_700_000_000_000
SECOND = 1000
TOPIC = "reminders"
QUEUES = 3
MEMORY = 1 << 20
ROLL_SECONDS = 60
MAX_SECONDS = 300


@dataclasses.dataclass(slots=True)
class Sent:
    """A message as its sender knows it."""

    body: bytes
    deliver_ms: int
    log_end: int
    is_acknowledged: bool = False
    recall_end: int = 0
    """End offset of its recall marker in the log."""
    was_asked_back: bool = False
    is_recalled: bool = False
    """True if the recall was acknowledged."""


class TimerLife:
    """A timer over many crashes: power failures if ``is_power``, else kills."""

    def __init__(self, seed: int, *, is_power: bool) -> None:
        self.rng = random.Random(seed)
        self.is_power = is_power
        self.clock = ManualClock(START_MS)
        self.disk = MemoryDisk(seed, clock=self.clock)
        self.config = StoreConfig(
            store_path_root_dir="store",
            mapped_file_size_commit_log=self.rng.choice((12_288, 40_960)),
            mapped_file_size_consume_queue=self.rng.choice((100, 400, 8000)),
            mapped_file_size_timer_log=self.rng.choice((150, 700, 4096)),
            max_index_num=200,
            flush_disk_type=FlushDiskType.SYNC_FLUSH if is_power else FlushDiskType.ASYNC_FLUSH,
            file_reserved_time=10_000,
            timer_roll_window_slot=ROLL_SECONDS,
            timer_max_delay_sec=MAX_SECONDS,
        )
        self.sent: dict[bytes, Sent] = {}
        self.crashes = 0
        self.repeated = 0
        """Repeated deliveries in total."""
        self.store: MessageStore
        self.timer: TimerService

    # Actions

    async def live(self, crashes: int) -> None:
        """Run until so many crashes happened; then deliver everything and check."""
        await self._open()
        while self.crashes < crashes:
            self.disk.crash_after(self.rng.randrange(1, self.rng.choice((10, 60, 300))))
            try:
                for _ in range(400):
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
        await self.come_to_an_end()

    async def come_to_an_end(self) -> None:
        """Advance past all delivery times; then nothing is deferred any more, and every expected message is
        delivered."""
        self.disk.heal()
        for _ in range(MAX_SECONDS // 20 + 2):
            self.clock.advance(20 * SECOND)
            self._look()
            self.store.flush()
        self._look()
        self.store.flush()
        self.check_nothing_is_wrong()
        self.check_nothing_is_missing()
        self.repeated = self.repeats()
        await self._stop()

    async def _open(self) -> None:
        clock, disk = self.clock, self.disk
        self.writer = ConfigWriter(disk, self.config.path("config"), run_here)
        self.store = MessageStore.open(self.config, disk=disk, clock=clock, memory_size=MEMORY)
        stats = BrokerStats(clock, "DefaultCluster")
        counts = TimerCounts(self.writer, clock)
        self.timer = TimerService(
            runtime_of(self.store, self.writer, stats, flushed=self._flushed), cast("Any", run_here), counts
        )
        self.timer.load()

    async def _flushed(self, end: int) -> None:
        if self.store.log.flushed < end:
            self.store.flush()

    async def _crash(self) -> None:
        self.disk = self.disk.power_cut() if self.is_power else self.disk.kill()
        self.crashes += 1
        for sent in self.sent.values():
            sent.log_end = sent.log_end if sent.is_acknowledged else 0
            sent.recall_end = 0
        # Background tasks end with the crash.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _stop(self) -> None:
        await self.timer.stop()
        await self.writer.stop()
        self.store.close()

    async def _step(self) -> None:
        steps: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._send, 40),
            (self._recall, 8),
            (self._pass_time, 25),
            (self._turn, 25),
            (self._save, 8),
            (self._flush, 12),
            (self._sync_queues, 2),
            (self._reopen, 1),
        ]
        actions, weights = zip(*steps, strict=True)
        await self.rng.choices(actions, weights)[0]()
        # Raises PowerCut also if a background task crashed: no client gets a response after that.
        self.disk.stat("store")
        self._acknowledge()

    async def _send(self) -> None:
        deliver_ms = self.clock.now_ms() + self.rng.choice((1500, 5000, 30_000, 100_000, 250_000))
        deliver_ms += self.rng.randrange(2000)
        body = b"%d" % len(self.sent) + b"." * self.rng.choice((0, 10, 500))
        properties = encode({"UNIQ_KEY": f"K{len(self.sent)}", "TIMER_DELIVER_MS": str(deliver_ms)})
        self.sent[body] = sent = Sent(body, deliver_ms, 1 << 62)
        sent.log_end = self._put(body, properties)

    def _put(self, body: bytes, properties: bytes) -> int:
        parked = self.timer.defer(properties, TOPIC, self.rng.randrange(QUEUES))
        assert parked is not None
        topic, queue_id, properties = parked
        appended = self.store.append(StoredMessage(topic, queue_id, body, properties))
        return appended.offset + appended.size

    async def _recall(self) -> None:
        now = self.clock.now_ms()
        waiting = [
            (number, one)
            for number, one in enumerate(self.sent.values())
            if one.is_acknowledged and not one.recall_end and (one.deliver_ms - 1) // SECOND * SECOND + 1 > now
        ]
        if waiting:
            number, sent = self.rng.choice(waiting)
            out_ms = (sent.deliver_ms - 1) // SECOND * SECOND
            key = f"K{number}"
            sent.was_asked_back = True
            sent.recall_end = self._put(
                b"0", encode({"UNIQ_KEY": key, "TIMER_DEL_UNIQKEY": key, "TIMER_DELIVER_MS": str(out_ms + 1)})
            )

    def _acknowledge(self) -> None:
        safe = self.store.log.flushed if self.is_power else self.store.log.end
        for sent in self.sent.values():
            if 0 < sent.log_end <= safe:
                sent.is_acknowledged = True
            # It may be too late later, which is not reported.
            if 0 < sent.recall_end <= safe and self.clock.now_ms() <= (sent.deliver_ms - 1) // SECOND * SECOND:
                sent.is_recalled = True

    async def _pass_time(self) -> None:
        self.clock.advance(self.rng.choice((10, 500, 3000, 20_000)))

    async def _turn(self) -> None:
        self.timer.run_slice()

    def _look(self) -> None:
        while self.timer.run_slice() <= self.clock.now_ms():
            pass

    async def _save(self) -> None:
        await self.timer._save()

    async def _flush(self) -> None:
        self.store.flush()

    async def _sync_queues(self) -> None:
        self.store.sync_queues()

    async def _reopen(self) -> None:
        await self._stop()
        self.disk.stat("store")
        self._acknowledge()
        await self._open()

    # Invariants

    def delivered(self) -> Counter[bytes]:
        """How often each message was delivered; fails if one was early."""
        found: Counter[bytes] = Counter()
        for queue_id in range(QUEUES):
            offset = self.store.min_offset(TOPIC, queue_id)
            while offset < self.store.max_offset(TOPIC, queue_id):
                result = self.store.get(TOPIC, queue_id, offset)
                for piece in result.slices:
                    for record in iter_records(bytes(piece)):
                        early = self.sent[record.body].deliver_ms - record.store_timestamp
                        assert early <= 0, f"{record.body!r} came {early} ms early"
                        found[record.body] += 1
                offset = result.next_begin_offset
        return found

    def check_nothing_is_wrong(self) -> None:
        """No recalled message is delivered."""
        taken_back = {body for body, sent in self.sent.items() if sent.is_recalled}
        assert not taken_back & self.delivered().keys()

    def check_nothing_is_missing(self) -> None:
        """Every message is delivered that was acknowledged and not recalled."""
        found = self.delivered()
        for body, sent in self.sent.items():
            # An unacknowledged message may exist or not, and so may an unacknowledged recall.
            if sent.is_acknowledged and not sent.was_asked_back:
                assert body in found, f"{body!r} for {sent.deliver_ms} did not come"
        assert self.timer.waiting == 0
        assert self.timer.counts.of(TOPIC) == 0, self.timer.counts.table()

    def repeats(self) -> int:
        """Number of repeated deliveries."""
        return sum(count - 1 for count in self.delivered().values())
