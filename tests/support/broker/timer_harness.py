"""A store with messages that wait for their time, and the service that enters and delivers them on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.timer.counts import TimerCounts
from orbitmq.broker.timer.service import TimerService
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import StoredMessage
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.runtimes import runtime_of
from support.store.stores import TOPIC, open_small, read_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.message.record import Record
    from orbitmq.store import MessageStore

ROOT = "/store"
SECOND = 1000
DAY = 86_400 * SECOND
ROOMY: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_index_num": 10_000,
    "mapped_file_size_timer_log": 4096,
}


class Timers:
    """A timer by hand: nothing happens but in ``look`` and ``wait``."""

    def __init__(self, store: MessageStore, disk: Disk | None = None) -> None:
        self.store = store
        self.disk = disk or store.disk
        self.clock = cast("ManualClock", store.clock)
        self.stats = BrokerStats(store.clock, "DefaultCluster")
        self.writer = ConfigWriter(store.disk, store.config.path("config"), self._run_here)
        self.counts = TimerCounts(self.writer, store.clock)
        self.service = TimerService(
            runtime_of(store, self.writer, self.stats, flushed=self._flushed),
            cast("Any", self._run_here),
            self.counts,
        )
        self.service.load()

    async def _run_here(self, work: Callable[[], Any]) -> Any:
        return work()

    async def _flushed(self, end: int) -> None:
        assert self.store.flush() >= end

    def send(
        self, name: str, value: object, body: bytes = b"hello", queue_id: int = 2, topic: str = TOPIC, **more: str
    ) -> bool:
        """Defer and store a timer message; False if it was due already."""
        properties = encode({"KEYS": "k", "TAGS": "TagA", "UNIQ_KEY": body.decode(), name: str(value), **more})
        deferred = self.service.defer(properties, topic, queue_id)
        topic, queue_id, properties = deferred or (topic, queue_id, properties)
        self.store.append(StoredMessage(topic, queue_id, body, properties))
        return deferred is not None

    def send_in(self, seconds: float, body: bytes = b"hello", **more: str) -> bool:
        time = self.clock.now_ms() + round(seconds * SECOND)
        return self.send("TIMER_DELIVER_MS", time, body, 2, TOPIC, **more)

    def take_back(self, body: bytes, seconds: float) -> None:
        """Recall what was sent with ``send_in``."""
        self.send(
            "TIMER_DELIVER_MS",
            (self.service.out_time(self.clock.now_ms() + round(seconds * SECOND)) or 0) + 1,
            b"0",
            2,
            TOPIC,
            TIMER_DEL_UNIQKEY=body.decode(),
            UNIQ_KEY=body.decode(),
        )

    def look(self) -> int:
        """Do all there is to do now; returns in how many milliseconds to look again."""
        now = self.clock.now_ms()
        while True:
            after = self.service.run_slice() - now
            if after > 0:
                return after

    def wait(self, ms: int) -> int:
        self.clock.advance(ms)
        return self.look()

    @property
    def deferred(self) -> list[Record]:
        return read_all(self.store, TIMER_TOPIC)

    @property
    def delivered(self) -> list[Record]:
        return [record for queue_id in range(4) for record in read_all(self.store, TOPIC, queue_id)]

    def bodies(self) -> list[bytes]:
        return [record.body for record in self.delivered]

    async def save(self) -> None:
        """Make durable what the service would after a while."""
        await self.service._save()

    async def stop(self) -> None:
        await self.service.stop()
        await self.writer.stop()
        self.store.close()


def small_timers(**settings: Any) -> Timers:
    """A new store on a virtual disk."""
    disk = MemoryDisk()
    return Timers(open_small(ROOT, disk=disk, **(ROOMY | settings)), disk)


def reopened(timers: Timers, disk: MemoryDisk | None = None, **settings: Any) -> Timers:
    """The same store after a proper exit, or what ``disk`` has of it after another one."""
    found = cast("MemoryDisk", disk or timers.disk)
    return Timers(open_small(ROOT, disk=found, clock=timers.clock, **(ROOMY | settings)), found)


def properties_of(record: Record) -> dict[str, str]:
    return parse(record.properties)
