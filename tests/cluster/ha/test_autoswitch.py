"""A change of the master in one process: what clients and services see of it, and what happens when it fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.aio import Consumer, Message, Producer, SendStatus, TransactionProducer, TransactionState
from orbitmq.testing import MemoryDisk
from support.broker.autoswitch_pair import AutoswitchPair
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from orbitmq.broker.autoswitch.broker import ControlledBroker


async def switch(pair: AutoswitchPair) -> tuple[ControlledBroker, ControlledBroker]:
    """Make the slave the master; returns the old master and the new one."""
    old, new = pair.master, pair.slave
    await pair.elect(new)
    await eventually(lambda: new.term.is_master and not old.term.is_master and len(pair.in_sync) == 2)
    return old, new


def same_log(pair: AutoswitchPair) -> bool:
    one, other = (broker.broker for broker in pair.brokers)
    assert one is not None
    assert other is not None
    return (
        one.store.log.end == other.store.log.end == one.store.dispatcher.position == other.store.dispatcher.position
    )


async def test_messages_of_every_kind_are_delivered_by_the_next_master() -> None:
    got: set[bytes] = set()
    async with AutoswitchPair() as pair:
        consumer = Consumer(pair.name_server, group="c", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
        consumer.on("orders")(lambda message: got.add(bytes(message.body)))
        async with (
            Producer(pair.name_server, group="p") as producer,
            TransactionProducer(pair.name_server, group="tp", check=lambda _: TransactionState.COMMIT) as halves,
            consumer,
        ):
            await producer.send(Message("orders", b"plain"))
            await eventually(lambda: b"plain" in got)
            await producer.send(Message("orders", b"delayed", delay_level=2))
            await producer.send(Message("orders", b"timed", delay=4))
            await switch(pair)
            await eventually(lambda: {b"delayed", b"timed"} <= got)
            await asyncio.wait_for(producer.send(Message("orders", b"after")), 20)
            async with halves.transaction(Message("orders", b"transaction")):
                pass
            await eventually(lambda: {b"after", b"transaction"} <= got)
        await eventually(lambda: same_log(pair))


@pytest.mark.parametrize(
    "settings",
    [{}, {"flushDiskType": "SYNC_FLUSH"}, {"allAckInSyncStateSet": "false", "inSyncReplicas": 2}],
    ids=["all", "flush", "two"],
)
async def test_roles_change_back_and_forth_without_a_restart(settings: dict[str, object]) -> None:
    async with AutoswitchPair(None, **settings) as pair, Producer(pair.name_server, group="p") as producer:
        for number in range(3):
            for _ in range(20):
                sent = await producer.send(Message("orders", b"%d" % number))
                assert sent.status is SendStatus.SEND_OK
            old, _ = await switch(pair)
            assert old.broker is not None
            assert old.broker.role.is_slave
        await eventually(lambda: same_log(pair))
        assert [broker._epochs.epochs.last_epoch for broker in pair.brokers].count(4) >= 1


class BrokenDisk(MemoryDisk):
    """A disk that refuses to write the epoch file while ``is_broken``."""

    is_broken = False
    refused = 0

    def write(self, path: str, data: bytes) -> None:
        if self.is_broken and "epochFileCheckpoint" in path:
            self.refused += 1
            raise OSError(5, "the disk is broken")
        super().write(path, data)


async def test_a_change_that_fails_is_repeated() -> None:
    disk = BrokenDisk()
    async with AutoswitchPair((MemoryDisk(), disk)) as pair:
        async with Producer(pair.name_server, group="p") as producer:
            await producer.send(Message("orders", b"1"))
        disk.is_broken = True
        new = pair.slave
        await pair.elect(new)
        await eventually(lambda: disk.refused > 1)
        assert not new.term.is_master
        disk.is_broken = False
        await eventually(lambda: new.term.is_master and len(pair.in_sync) == 2)
        async with Producer(pair.name_server, group="p") as producer:
            assert (await producer.send(Message("orders", b"2"))).status is SendStatus.SEND_OK


async def test_consumers_see_what_every_replica_in_sync_has() -> None:
    async with AutoswitchPair(haMaxTimeSlaveNotCatchup=60_000) as pair:
        master, slave = pair.master.broker, pair.slave.broker
        assert master is not None
        assert slave is not None
        assert slave.slave is not None
        async with Producer(pair.name_server, group="p", send_msg_timeout=30_000) as producer:
            await producer.send(Message("orders", b"1"))
            connection = slave.slave.connection
            assert connection is not None
            assert connection._transport is not None
            connection._transport.pause_reading()
            before = master.store.dispatcher.position
            waiting = asyncio.create_task(producer.send(Message("orders", b"2")))
            await eventually(lambda: master.store.log.end > before)
            master.store.catch_up()
            assert master.store.dispatcher.position == before
            assert not waiting.done()
            connection._transport.resume_reading()
            assert (await waiting).status is SendStatus.SEND_OK
            await eventually(lambda: master.store.dispatcher.position == master.store.log.end)
            await eventually(lambda: same_log(pair))
