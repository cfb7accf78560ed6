"""A master and a slave in the test process; the log is copied on request, so that a test decides when."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from support.broker.broker_harness import running_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker.broker import Broker
    from orbitmq.broker.slave_sync.service import SlaveSync
    from orbitmq.platform.disk import Disk
    from orbitmq.testing import ManualClock


@contextlib.asynccontextmanager
async def running_slave(
    disk: Disk | None = None, clock: ManualClock | None = None, **settings: object
) -> AsyncIterator[Broker]:
    """A slave that follows nothing until ``sync`` is called."""
    more: dict[str, Any] = {"brokerRole": "SLAVE", "brokerId": 1, **settings}
    async with running_broker(disk, clock, **more) as slave:
        yield slave


def sync_of(slave: Broker) -> SlaveSync:
    assert slave.slave_sync is not None
    return slave.slave_sync


async def sync(slave: Broker, master: Broker) -> None:
    """One round of the slave with this master, after its log was copied."""
    copy_log(master, slave)
    await sync_of(slave).sync(master.settings.broker.broker_address)


def copy_log(master: Broker, slave: Broker) -> None:
    """Give the slave the log of the master, and build its queues."""
    source, store = master.store.log, slave.store
    while store.log.end < source.end:
        offset = store.log.end
        base = offset - offset % source.file_size
        buffer = source.files.buffer_at(offset)
        assert buffer is not None
        stop = min(source.end - base, source.file_size)
        store.append_raw(bytes(memoryview(buffer)[offset - base : stop]), offset)
    store.flush()
    store.catch_up()
