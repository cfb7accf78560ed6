"""Sends that are cancelled at any moment: what is stored is whole, and in the topic that it was sent to."""

from __future__ import annotations

import asyncio
import random

from orbitmq.aio import Message, Producer
from orbitmq.testing import LocalCluster
from support.broker.requests import stored

TOPICS = ("orders", "secrets")
SENDS = 400


async def test_cancelled_sends_put_no_bytes_into_another_topic() -> None:
    rng = random.Random(7)
    async with LocalCluster() as cluster, Producer(cluster.name_server, group="p") as producer:
        for topic in TOPICS:
            await producer.send(Message(topic, topic.encode()))

        async def send(topic: str) -> None:
            await producer.send(Message(topic, topic.encode() * rng.randrange(1, 500)))

        tasks = []
        for number in range(SENDS):
            tasks.append(asyncio.create_task(send(TOPICS[number % 2])))
            if rng.random() < 0.3:
                await asyncio.sleep(0)
            if rng.random() < 0.4:
                rng.choice(tasks).cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert not [one for one in outcomes if isinstance(one, Exception)]
        for topic in TOPICS:
            broker = cluster.broker()
            bodies = [record.body for queue in range(8) for record in stored(broker, topic, queue)]
            assert len(bodies) > SENDS / 8
            for body in bodies:
                assert bytes(body) == topic.encode() * (len(body) // len(topic))
