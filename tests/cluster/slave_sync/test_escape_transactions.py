"""Transactions that were open when a master died are checked by another one, and end once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.aio import Message, TransactionProducer, TransactionState
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.names import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from orbitmq.testing import LocalCluster
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.aio import ReceivedMessage
    from orbitmq.broker import Broker

MASTER, SLAVE, OTHER, TOPIC = "broker-a", "broker-a-1", "broker-b", "orders"
SETTINGS = {
    "slaveMetadataCheckPeriod": "30",
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "syncBrokerMemberGroupPeriod": "30",
    "transactionCheckInterval": "100",
    # No op message is written while the master lives.
    "transactionOpBatchInterval": "3600000",
}
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def bodies(broker: Broker) -> list[bytes]:
    pieces = [piece for queue in range(4) for piece in broker.store.get(TOPIC, queue, 0, 1000).slices]
    return sorted(bytes(record.body) for piece in pieces for record in iter_records(piece))


async def test_another_master_checks_the_transactions_of_a_dead_one(tmp_path: Path) -> None:
    checked: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        checked.append(message.body)
        return COMMIT if message.body.startswith(b"good") else ROLLBACK

    async with LocalCluster(brokers=2, replicas=2, settings=SETTINGS, directory=tmp_path) as cluster:
        slave, other = cluster.broker(SLAVE), cluster.broker(OTHER)
        cluster.broker(MASTER).topics.update(TopicConfig(TOPIC, 4, 4))
        await eventually(lambda: TOPIC in slave.topics.configs)
        async with TransactionProducer(
            cluster.name_server,
            group="shop",
            check=check,
            poll_name_server_interval=0.1,
            heartbeat_broker_interval=0.1,
        ) as producer:
            for body, state in (
                (b"done", COMMIT),
                (b"good-1", UNKNOWN),
                (b"bad-1", UNKNOWN),
                (b"gone", ROLLBACK),
                (b"good-2", UNKNOWN),
            ):

                async def local(_: object, state: TransactionState = state) -> TransactionState:
                    return state

                await producer.send_in_transaction(Message(TOPIC, body), local)
            await eventually(lambda: bodies(cluster.broker(MASTER)) == [b"done"])
            await cluster.wait_until_replicated()
            other.topics.update(TopicConfig(TOPIC, 4, 4))
            await eventually(lambda: "shop" in other.clients.producers)
            await cluster.kill(MASTER)
            assert not slave.store.queues.queue_ids(TRANSACTION_OP_TOPIC)
            await eventually(lambda: slave.role.acts_as_master)
            # What was committed is not sent, though no op message says so; what was rolled back is.
            await eventually(lambda: other.store.max_offset(TRANSACTION_HALF_TOPIC, 0) == 4)
            assert not checked
            await cluster.advance(30)
            await eventually(lambda: bodies(other) == [b"good-1", b"good-2"])
            assert set(checked) == {b"good-1", b"good-2", b"bad-1", b"gone"}
            await cluster.start(MASTER)
            master = cluster.broker(MASTER)
            checked.clear()
            await cluster.advance(60)
            await eventually(lambda: "shop" in master.clients.producers)
            await master.checks.check()
            assert not checked
            assert bodies(master) == [b"done"]
            assert bodies(other) == [b"good-1", b"good-2"]
