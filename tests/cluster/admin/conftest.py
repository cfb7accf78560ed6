"""A cluster of two brokers with a topic, messages and a group, and the operator's client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq import Message
from orbitmq.admin import AdminClient
from orbitmq.admin.topic.model import TopicSettings
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def pair() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(brokers=2) as running:
        yield running


@pytest.fixture
async def admin(pair: LocalCluster) -> AsyncIterator[AdminClient]:
    async with AdminClient(pair.name_server) as client:
        yield client


@pytest.fixture
async def orders(pair: LocalCluster, admin: AdminClient) -> list[str]:
    """Ids of six messages of the topic ``orders``, which has two queues on each broker."""
    await admin.topics.create("orders", TopicSettings(read_queues=2, write_queues=2))
    async with pair.producer(group="shop") as producer:
        return [
            (
                await producer.send(
                    Message("orders", f"body {number}", keys=f"key-{number}", tags="AB"[number % 2])
                )
            ).message_id
            for number in range(6)
        ]
