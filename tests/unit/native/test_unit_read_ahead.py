"""Units of a queue that are read ahead of a consumer: all that it gets is what the queue has now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.store import StoredMessage
from support.broker.requests import TOPIC, Talker, bodies, talk
from support.native.marks import needs_native
from support.store.watched_disk import WatchedLocalDisk

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.broker import Broker
    from orbitmq.store.consumequeue.table import Queue

pytestmark = needs_native

COUNT = 1500
QUEUE_FILE = 20 * 2 * COUNT
SENT = [b"%d" % number for number in range(COUNT)]


async def fill(broker: Broker, client: Talker) -> Queue:
    """The queue, most of whose units are in its file only."""
    await client.stores(SENT[0])
    broker.store.flush()
    for body in SENT[1:]:
        broker.store.append(StoredMessage(TOPIC, 0, body, b"UNIQ_KEY\x01AB\x02"))
    queue = broker.store.queues.get(TOPIC, 0)
    assert queue.tail_start > COUNT - 300
    return queue


async def test_a_consumer_that_goes_on_gets_everything_with_few_reads(tmp_path: Path) -> None:
    disk = WatchedLocalDisk()
    async with talk(disk, storePathRootDir=tmp_path, mappedFileSizeConsumeQueue=QUEUE_FILE) as (broker, client):
        await fill(broker, client)
        disk.watch.operations.clear()
        got: list[bytes] = []
        pulls = 0
        while len(got) < COUNT:
            got += bodies(await client.pulls(len(got)))
            pulls += 1

        assert got == SENT
        assert len(disk.watch.of("pread", "consumequeue")) < pulls / 4


async def test_a_consumer_that_goes_elsewhere_gets_what_is_there(tmp_path: Path) -> None:
    async with talk(WatchedLocalDisk(), storePathRootDir=tmp_path, mappedFileSizeConsumeQueue=QUEUE_FILE) as (
        broker,
        client,
    ):
        queue = await fill(broker, client)
        for offset in (0, 390, 10, 399, 400, 380, 1000, 1, 1499, 700, 1299, 0):
            got = bodies(await client.pulls(offset))
            assert got == SENT[offset : offset + len(got)]
            stop = queue.tail_start if offset < queue.tail_start else COUNT
            assert len(got) == min(32, stop - offset)


async def test_units_that_were_read_ahead_are_forgotten_with_what_is_behind_them(tmp_path: Path) -> None:
    async with talk(WatchedLocalDisk(), storePathRootDir=tmp_path, mappedFileSizeConsumeQueue=QUEUE_FILE) as (
        broker,
        client,
    ):
        queue = await fill(broker, client)
        for _ in range(2):  # the first makes the group known, and what was decided is decided again
            assert bodies(await client.pulls(0)) == SENT[:32]
        queue.truncate(40)
        assert bodies(await client.pulls(20)) == SENT[20:40]
