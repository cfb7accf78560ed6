"""Probes: check with new messages that redelivery, timer, delay levels and transaction checks work."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.broker.pop_harness import BACK_MS, Popper, bodies_of, let_pass, popper_of
from support.broker.requests import stored
from support.broker.transaction_harness import BY_HAND, TIMEOUT, TransactionPeer, producing_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker
    from orbitmq.platform.disk import Disk

ENOUGH_EMPTY = 4
"""Empty pops after which nothing is left: each ends after some milliseconds, perhaps before the last queue."""

_numbers = itertools.count(1)


@dataclasses.dataclass(slots=True)
class Services:
    """A broker whose services run on demand, with a client for each of them."""

    broker: Broker
    clock: ManualClock
    disk: Disk
    popper: Popper
    producer: TransactionPeer

    async def run(self, ms: int) -> None:
        """Advance time and run all services."""
        let_pass(self.broker, self.clock, ms)
        while self.broker.schedule.deliver_due() <= self.clock.now_ms():
            pass
        await self.broker.checks.check()
        self.broker.store.flush()

    @property
    def skipped(self) -> dict[str, int]:
        return self.broker.stats.quarantine.counts

    async def probe(self) -> None:
        """Send a message through every service and check the result."""
        topic = f"Probe{next(_numbers)}"
        await self.popper.stores(b"popped", topic=topic)
        assert bodies_of(await self.popper.gets(topic)) == [b"popped"]
        timed = {"UNIQ_KEY": "T", "TIMER_DELIVER_MS": str(self.clock.now_ms() + 3000)}
        await self.popper.stores(b"timed", topic=topic, queueId=1, properties=timed)
        delayed = {"UNIQ_KEY": "D", "DELAY": "1"}
        await self.popper.stores(b"delayed", topic=topic, queueId=2, properties=delayed)
        half = await self.producer.prepares(b"half", topic=topic, queueId=3, born=self.clock.now_ms())
        await self.run(BACK_MS)
        assert [record.body for record in stored(self.broker, topic, 1)] == [b"timed"]
        assert [record.body for record in stored(self.broker, topic, 2)] == [b"delayed"]
        await self._commit(half.key)
        assert [record.body for record in stored(self.broker, topic, 3)] == [b"half"]
        # Three queues have messages of other probes in them.
        again, empty = [], 0
        while empty < ENOUGH_EMPTY:
            some = await self.popper.gets(topic)
            again += some
            empty = 0 if some else empty + 1
        assert bodies_of(again) == [b"delayed", b"half", b"popped", b"timed"], bodies_of(again)
        await self.popper.settles(*again)

    async def _commit(self, key: str) -> None:
        """Commit the half message with this key; the broker must have checked it by now."""
        for _ in range(await self.producer.questions()):
            question = await self.producer.questioned()
            if question.key == key:
                answer = await self.producer.ends(question)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                return
        raise AssertionError(f"no check for {key}")


@contextlib.asynccontextmanager
async def services(
    disk: Disk | None = None, clock: ManualClock | None = None, **settings: Any
) -> AsyncIterator[Services]:
    """``settings`` have Java's keys."""
    disk, clock = disk or MemoryDisk(), clock or ManualClock(T0)
    asked: dict[str, Any] = {
        "popFromRetryProbability": 0,
        "reviveInterval": 10**9,
        "mappedFileSizeCommitLog": 1 << 24,
        # Services that run by hand block the event loop; clients must not be throttled for it here.
        "osPageCacheBusyTimeOutMills": 10**6,
        "transactionTimeOut": TIMEOUT,
        **BY_HAND,
        **settings,
    }
    async with (
        running_broker(disk, clock, **asked) as broker,
        popper_of(broker) as popper,
        producing_to(broker) as producer,
    ):
        await producer.produces()
        yield Services(broker, clock, disk, popper, producer)
