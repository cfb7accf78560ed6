"""A pull consumer from its start to its end, and what brokers and tools ask of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker import Broker
from orbitmq.client.errors import InvalidMessageError, NotRunningError
from orbitmq.client.lite_pull.consumer import LitePullConsumer
from orbitmq.protocol.bodies import ConsumerRunningInfo, GetConsumerStatusBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.broker_harness import T0
from support.client.lite_pull_harness import (
    FIRST,
    GROUP,
    QUEUES,
    TOPIC,
    forwarding,
    free_port,
    silent,
    texts,
    world,
)
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from orbitmq.broker.send.processor import SendRequests
    from orbitmq.remoting import Handler


# What brokers and tools do


async def test_a_broker_before_five_is_asked_with_ordinary_pulls(monkeypatch: pytest.MonkeyPatch) -> None:
    of_today = Broker._handlers

    def older(broker: Broker, sends: SendRequests) -> dict[int, Handler]:
        return {code: one for code, one in of_today(broker, sends).items() if code != RequestCode.LITE_PULL_MESSAGE}

    monkeypatch.setattr(Broker, "_handlers", older)
    async with world() as here, here.consumer() as consumer:
        consumer.assign(QUEUES)
        await here.send("old")
        assert await texts(consumer, 1) == ["old"]
        await here.send("again")
        assert await texts(consumer, 1) == ["again"]


async def test_a_reset_in_the_broker_moves_the_consumer_with_its_next_pull() -> None:
    async with world() as here, here.consumer(auto_commit=False) as consumer:
        consumer.subscribe(TOPIC)
        await here.send(*"abc")
        assert await texts(consumer, 3) == list("abc")
        await consumer.commit()
        await here.reset(T0)
        await here.send("d")
        assert await texts(consumer, 4) == list("abcd")
        assert await consumer.committed(QUEUES[0]) == 0


async def test_a_reset_that_the_broker_leaves_to_its_clients_moves_the_consumer_at_once() -> None:
    async with world(useServerSideResetOffset=False) as here, here.consumer() as consumer:
        consumer.subscribe(TOPIC)
        await here.send(*"abc")
        assert await texts(consumer, 3) == list("abc")
        await eventually(lambda: all(consumer.position(queue) is not None for queue in QUEUES))
        await consumer.commit()
        await here.reset(T0)
        assert await texts(consumer, 3) == list("abc")


async def test_a_tool_sees_how_the_consumer_is_doing() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.subscribe(TOPIC, tags="A")
        await here.send("a", TAGS="A")
        await texts(consumer, 1)
        await consumer.commit()
        assert consumer._instance is not None
        client_id = consumer._instance.client_id
        assert client_id.endswith("@STREAM")
        answer = await here.talker.asks(
            RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=GROUP, clientId=client_id, jstackEnable=True
        )
        info = ConsumerRunningInfo.decode(answer.body or b"")
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert info.mq_table[QUEUES[0]].commit_offset == 1
        assert [one.sub_string for one in info.subscription_set] == ["A"]
        assert "keep_pulling" in (info.jstack or "")
        answer = await here.talker.asks(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic=TOPIC, group=GROUP)
        tables = GetConsumerStatusBody.decode(answer.body or b"")
        assert answer.code == ResponseCode.SUCCESS, tables


async def test_a_lost_connection_is_made_again() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.assign(QUEUES)
        await here.send("before")
        assert await texts(consumer, 1) == ["before"]
        for connection in here.broker.connections:
            if connection.remote_address != here.talker.address:
                connection.abort()
        await here.send("after")
        assert await texts(consumer, 1) == ["after"]


# Life


async def test_nothing_can_be_polled_before_the_start_or_after_the_end() -> None:
    async with world() as here:
        consumer = here.consumer()
        with pytest.raises(NotRunningError, match="start it first"):
            await consumer.poll()
        async with consumer:
            assert consumer.is_running
        with pytest.raises(NotRunningError):
            await consumer.poll()
        with pytest.raises(NotRunningError, match="only once"):
            await consumer.start()
        await consumer.close()


async def test_the_next_name_server_is_asked_if_one_is_gone() -> None:
    async with world() as here:
        servers = [f"{HOST}:1", f"{HOST}:{here.name_server.port}"]
        consumer = LitePullConsumer(servers, group=GROUP, consume_from_where=FIRST)
        consumer.subscribe(TOPIC)
        await here.send("found")
        async with consumer:
            assert await texts(consumer, 1) == ["found"]


async def test_a_consumer_waits_for_its_name_server() -> None:
    async with world() as here:
        await here.send("found")
        port = free_port()
        consumer = LitePullConsumer(
            f"{HOST}:{port}", group=GROUP, consume_from_where=FIRST, rebalance_min_interval=0.01
        )
        consumer.subscribe(TOPIC)
        async with consumer:
            await silent(consumer)
            async with forwarding(port, here.name_server.port):
                assert await texts(consumer, 1) == ["found"]


async def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    # Whoever takes connections and never answers keeps the start waiting.
    async with world(), forwarding(port := free_port(), None):
        consumer = LitePullConsumer(f"{HOST}:{port}", group=GROUP)
        consumer.subscribe(TOPIC)
        starting = asyncio.create_task(consumer.start())
        await eventually(lambda: consumer.is_running)
        await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not consumer.is_running


@pytest.mark.parametrize(
    "options",
    [
        {"message_model": "WHATEVER"},
        {"pull_batch_size": 0},
        {"pull_threshold_for_all": 0},
        {"auto_commit_interval": 0.1},
        {"broker_suspend_max_time": 40.0},
        {"poll_timeout": -1.0},
        {"pul_batch_size": 1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError):
        LitePullConsumer(f"{HOST}:1", group=GROUP, **options)
