"""A lowered message size limit: messages accepted before are delivered, and no service stops."""

from __future__ import annotations

from faults.services.probes import services
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0
from support.broker.pop_harness import BACK_MS, bodies_of
from support.broker.requests import CONSUMERS, TOPIC, stored

LARGE = bytes(5000)


async def test_large_messages_accepted_before_the_limit_was_lowered_are_delivered() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with services(disk, clock) as running:
        await running.popper.stores(LARGE)
        assert bodies_of(await running.popper.gets()) == [LARGE]
        await running.popper.stores(LARGE, queueId=1, properties={"UNIQ_KEY": "T", "TIMER_DELAY_SEC": "3"})
        await running.popper.stores(LARGE, queueId=2, properties={"UNIQ_KEY": "D", "DELAY": "1"})
        await running.producer.prepares(LARGE, queueId=3, born=clock.now_ms())
    async with services(disk, clock, maxMessageSize="1000") as running:
        await running.run(BACK_MS)
        for queue_id in (1, 2):
            assert [record.body for record in stored(running.broker, queue_id=queue_id)] == [LARGE]
        retry = pop_retry_topic(TOPIC, CONSUMERS, v2=False)
        assert [record.body for record in stored(running.broker, retry)] == [LARGE]
        assert await running.producer.questions() == 1
        await running.producer.ends(await running.producer.questioned())
        assert [record.body for record in stored(running.broker, queue_id=3)] == [LARGE]
        assert running.skipped == {}
        await running.probe()
