"""What master and slave have in common, and a slave that becomes a master by hand."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

from orbitmq.aio import Message, Producer, SendStatus
from orbitmq.testing.cluster_nodes import SETTINGS
from support.broker.broker_harness import running_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orbitmq.broker import Broker
    from orbitmq.store import MessageStore
    from orbitmq.testing import LocalCluster

MASTER, SLAVE = "broker-a", "broker-a-1"
FILE = 1 << 20
FAST = {
    "mappedFileSizeCommitLog": str(FILE),
    "haSendHeartbeatInterval": "50",
    "haHousekeepingInterval": "60000",
}
SYNC = {**FAST, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "60000"}


def log_bytes(broker: Broker) -> bytes:
    """The whole log that a broker has."""
    log = broker.store.log
    return b"".join(
        bytes(log.files.mapped(base).buffer[: min(log.end - base, log.file_size)]) for base in log.files.bases
    )


def queue_contents(broker: Broker) -> dict[tuple[str, int], tuple[int, int, bytes]]:
    """Range and units of every queue that has messages."""
    store = broker.store
    found = {}
    for topic in store.queues.names():
        for queue_id in store.queues.queue_ids(topic):
            queue = store.queues.find(topic, queue_id)
            assert queue is not None
            if queue.max_offset > queue.min_offset:
                units = b"".join(_units(queue))
                found[topic, queue_id] = queue.min_offset, queue.max_offset, units
    return found


def _units(queue: Any) -> Iterator[bytes]:
    at = queue.min_offset
    while at < queue.max_offset:
        units = bytes(queue.units(at, queue.max_offset - at))
        assert units
        yield units
        at += len(units) // 20


def index_entries(store: MessageStore) -> list[tuple[int, int]]:
    """Hash and log offset of every key of the index whose record is in the log, in the order of its files."""
    index = store.index
    assert index is not None
    index.flush_pending()
    entries = [entry for part in index._parts for entry in index._mapped(part).entries()]
    return [(entry.key_hash, entry.offset) for entry in entries if entry.offset >= store.log.start]


def assert_same(master: Broker, slave: Broker) -> None:
    mine, theirs = log_bytes(slave), log_bytes(master)
    if mine != theirs:
        at = next(n for n, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other)
        raise AssertionError(f"logs of {len(mine)} and {len(theirs)} bytes differ at {at}: {slave.store.recovery}")
    assert queue_contents(slave) == queue_contents(master)
    assert index_entries(slave.store) == index_entries(master.store)


class Sends:
    """Messages of several kinds, and those that were acknowledged. Longer bodies are compressed by the client."""

    def __init__(self, cluster: LocalCluster, seed: int = 0) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self.acknowledged: set[bytes] = set()
        self.statuses: list[SendStatus] = []

    async def some(self, count: int, size: int = 4000, **options: Any) -> None:
        async with Producer(self._cluster.name_server, group="p", **options) as producer:
            for _ in range(count):
                body = self._rng.randbytes(self._rng.randrange(1, size))
                kind = self._rng.randrange(8)
                if kind == 0:
                    message = Message("later", body, delay_level=18)
                elif kind == 1:
                    message = Message("orders", body, keys=["k"], tags="t")
                else:
                    message = Message("orders", body)
                receipt = await producer.send(message)
                self.statuses.append(receipt.status)
                if receipt.status is SendStatus.SEND_OK:
                    self.acknowledged.add(body)


@contextlib.asynccontextmanager
async def promoted(cluster: LocalCluster, name: str = SLAVE, **settings: Any) -> AsyncIterator[Broker]:
    """The store of a slave that was stopped or killed, opened by a master, as an operator does by hand."""
    more: dict[str, Any] = {**SETTINGS, **FAST, "storePathRootDir": f"/cluster/{name}", **settings}
    disk: Any = cluster.disk(name)
    async with running_broker(disk, **more) as broker:
        yield broker


def bodies(broker: Broker) -> set[bytes]:
    """The bodies of all records in the log."""
    from orbitmq.protocol.message.record import iter_records

    found = set()
    for base in broker.store.log.files.bases:
        log = broker.store.log
        data = bytes(log.files.mapped(base).buffer[: min(log.end - base, log.file_size)])
        found |= {bytes(record.body) for record in iter_records(data)}
    return found
