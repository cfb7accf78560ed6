"""A broker with brokerRole=SLAVE: registered with its id, refuses what changes something, runs no service."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.testing import LocalCluster
from support.broker.broker_harness import BrokerPeer, running_broker
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker


@contextlib.asynccontextmanager
async def slave_of(cluster: LocalCluster, **settings: str) -> AsyncIterator[Broker]:
    more: dict[str, Any] = {"namesrvAddr": cluster.name_server, **settings}
    async with running_broker(brokerRole="SLAVE", brokerId=1, **more) as slave:
        await slave.registration.settled()
        yield slave


async def test_a_slave_learns_its_master_from_the_name_server() -> None:
    async with LocalCluster() as cluster:
        master = cluster.broker()
        async with slave_of(cluster) as slave:
            await eventually(lambda: bool(slave.role.master_address))
            assert slave.role.master_address == cluster.address("broker-a")
            assert slave.role.master_ha_address == master.settings.ha_address
        async with slave_of(cluster, haMasterAddress="127.0.0.1:9") as slave:
            await eventually(lambda: bool(slave.role.master_address))
            assert slave.role.master_ha_address == "127.0.0.1:9"


@pytest.mark.parametrize(
    ("code", "fields", "expected", "remark"),
    [
        (
            RequestCode.SEND_MESSAGE,
            {
                "producerGroup": "p", "topic": "TBW102", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "",
            },
            ResponseCode.SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while",
        ),
        (
            RequestCode.DELETE_TOPIC_IN_BROKER,
            {"topic": "orders"},
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
        ),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {"topic": "orders", "group": "g", "timestamp": -1, "isForce": "true"},
            ResponseCode.SYSTEM_ERROR,
            "Can not reset offset in slave broker",
        ),
        (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {"group": "g", "delayLevel": 0, "offset": 0},
            ResponseCode.SYSTEM_ERROR,
            "no master available along with 127.0.0.1",
        ),
    ],
)  # fmt: skip
async def test_a_slave_refuses_what_only_a_master_may_do(
    code: RequestCode, fields: dict[str, object], expected: ResponseCode, remark: str
) -> None:
    async with running_broker(brokerRole="SLAVE", brokerId=1) as slave, BrokerPeer.of(slave) as peer:
        end = slave.store.log.end
        answer = await peer.asks(code, b"body", **fields)
        assert (answer.code, answer.remark) == (expected, remark)
        assert slave.store.log.end == end


async def test_a_slave_in_a_group_with_acting_masters_answers_that_the_service_is_not_available() -> None:
    async with (
        running_broker(brokerRole="SLAVE", brokerId=1, enableSlaveActingMaster="true") as slave,
        BrokerPeer.of(slave) as peer,
    ):
        answer = await peer.asks(
            RequestCode.SEND_MESSAGE, b"body", producerGroup="p", topic="TBW102", defaultTopic="TBW102",
            defaultTopicQueueNums=4, queueId=0, sysFlag=0, bornTimestamp=1, flag=0, properties="",
        )  # fmt: skip
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (answer.remark or "").endswith("(this broker is a slave: send to its master)")
