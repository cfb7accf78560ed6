"""Moving groups to other offsets, here and by their clients; and asking clients where they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    GetConsumerStatusBody,
    MessageQueue,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from support.broker.client_registry_harness import CONFIG_DIR, GROUP, TOPIC, consumer, heartbeat
from support.broker.offset_harness import exchanges, offset_broker
from support.store.stores import send

if TYPE_CHECKING:
    from support.broker.client_registry_harness import Client
    from support.broker.offset_harness import OffsetBroker

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


async def moved(broker: OffsetBroker, **fields: object) -> dict[int, int]:
    """Where the queues are after a reset, as the answer says."""
    asked: dict[str, object] = {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": True}
    table = ResetOffsetBody.decode(await broker.body(RESET, **{**asked, **fields})).offset_table
    assert {(queue.topic, queue.broker_name) for queue in table} == {(TOPIC, "broker-w")}
    return {queue.queue_id: offset for queue, offset in table.items()}


async def refused(broker: OffsetBroker, code: int = RESET, **fields: object) -> tuple[int, str | None]:
    asked: dict[str, object] = {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": True}
    answer = await broker.ask(code, **{**asked, **fields})
    assert answer.body is None
    return answer.code, answer.remark


def prepare(broker: OffsetBroker, queues: int = 2) -> int:
    """Queues with three messages each, 100 ms apart, of which the group has read two; returns the first time."""
    broker.add_topic(queues=queues)
    broker.add_group(GROUP)
    start = broker.clock.now_ms()
    for _ in range(3):
        for queue_id in range(queues):
            send(broker.store, topic=TOPIC, queue_id=queue_id)
        broker.clock.advance(100)
    for queue_id in range(queues):
        broker.offsets.commit(GROUP, TOPIC, queue_id, 2)
    return start


# Here


async def test_real_tools_get_the_answers_of_a_real_broker() -> None:
    async with offset_broker() as broker:
        broker.add_topic("T_push")
        broker.add_group("CG_push", "CG_live")
        for queue_id, count in enumerate((5, 5, 5, 4)):
            send(broker.store, count, topic="T_push", queue_id=queue_id)
        seen = 0
        for scenario in ("admin", "java_json_20_errors"):
            for request, expected in exchanges(scenario, RESET):
                answer = await broker.tool.answer(request.wire)
                wanted = Command.decode(expected.frame)
                assert (answer.code, answer.remark, answer.ext_fields) == (wanted.code, wanted.remark, {})
                if wanted.body is None:
                    assert answer.body is None
                else:
                    assert answer.body is not None
                    assert ResetOffsetBody.decode(answer.body) == ResetOffsetBody.decode(wanted.body)
                    assert len(answer.body) == len(wanted.body)
                seen += 1
        assert seen == 4


async def test_a_group_is_moved_to_a_time_or_to_the_end_and_stays_there_after_a_crash() -> None:
    async with offset_broker() as broker:
        start = prepare(broker)
        assert await moved(broker, timestamp=start + 50) == {0: 1, 1: 1}
        assert broker.offsets.of_group(GROUP, TOPIC) == {0: 1, 1: 1}
        file = broker.broker.disk.durable_bytes(f"{CONFIG_DIR}/consumerOffset.json")
        assert file is not None
        assert ConsumerOffsetSerializeWrapper.decode(file).offset_table == {f"{TOPIC}@{GROUP}": {0: 1, 1: 1}}
        assert await moved(broker, timestamp=-1) == {0: 3, 1: 3}
        assert await moved(broker, timestamp=0) == {0: 0, 1: 0}
        assert [broker.offsets.take_reset(GROUP, TOPIC, queue_id) for queue_id in range(3)] == [0, 0, None]


async def test_one_queue_is_moved_to_a_time_or_an_offset() -> None:
    async with offset_broker() as broker:
        start = prepare(broker)
        assert await moved(broker, queueId=1, offset=2) == {1: 2}
        assert await moved(broker, queueId=1, offset=-1, timestamp=start + 50) == {1: 1}
        assert await moved(broker, queueId=1, timestamp=-1) == {1: 3}
        assert broker.offsets.pending_resets == {f"{TOPIC}@{GROUP}": {1: 3}}


@pytest.mark.parametrize("offset", [5, 2**62, -2])
async def test_an_offset_outside_the_queue_is_refused(offset: int) -> None:
    async with offset_broker() as broker:
        prepare(broker)
        said = f"Target offset {offset} not in consume queue range [0-3]"
        assert await refused(broker, queueId=1, offset=offset) == (1, said)
        assert not broker.offsets.pending_resets


async def test_an_unknown_topic_or_group_is_not_reset() -> None:
    async with offset_broker() as broker:
        prepare(broker)
        assert await refused(broker, topic="TopicX") == (17, "Topic TopicX does not exist")
        assert await refused(broker, group="CG_x") == (26, "Group CG_x does not exist")
        assert (await refused(broker, queueId=2))[0] == ResponseCode.INVALID_PARAMETER
        broker.add_topic(queues=0)
        assert await refused(broker) == (1, "No queues to reset.")
        assert not broker.offsets.pending_resets


# By the clients


async def pushed(client: Client) -> Command:
    """The next request of the broker that is not a notification of the group's change."""
    while True:
        command = await client.receive()
        if command.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return command


async def test_clients_are_notified_in_the_encoding_that_each_can_read() -> None:
    async with (
        offset_broker(use_server_side_reset_offset=False) as broker,
        broker.broker.client() as java,
        broker.broker.client() as cpp,
    ):
        start = prepare(broker)
        await java.beat(heartbeat("java", consumer()))
        await cpp.beat(heartbeat("cpp", consumer()), language=LanguageCode.CPP)
        assert await moved(broker, timestamp=start + 50) == {0: 1, 1: 1}
        for client in (java, cpp):
            command = await pushed(client)
            assert command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            assert command.is_oneway
            said = {"topic": TOPIC, "group": GROUP, "timestamp": str(start + 50)}
            assert said.items() <= command.ext_fields.items()
            assert command.body is not None
            if client is java:
                queues = [MessageQueue(TOPIC, "broker-w", queue_id) for queue_id in range(2)]
                assert ResetOffsetBody.decode(command.body).offset_table == dict.fromkeys(queues, 1)
            else:
                wanted = [MessageQueueForC(TOPIC, "broker-w", queue_id, 1) for queue_id in range(2)]
                assert ResetOffsetBodyForC.decode(command.body).offset_table == wanted
        assert broker.offsets.of_group(GROUP, TOPIC) == {0: 2, 1: 2}
        assert not broker.offsets.pending_resets


async def test_clients_go_forward_only_by_force() -> None:
    async with (
        offset_broker(use_server_side_reset_offset=False) as broker,
        broker.broker.client() as client,
    ):
        start = prepare(broker)
        await client.beat(heartbeat("c1", consumer()))
        assert await moved(broker, timestamp=-1, isForce=False) == {0: 2, 1: 2}
        assert await moved(broker, timestamp=-1, isForce=True) == {0: 3, 1: 3}
        assert await moved(broker, timestamp=start, isForce=False) == {0: 0, 1: 0}


async def test_clients_are_not_notified_of_an_unknown_group_or_topic() -> None:
    async with offset_broker(use_server_side_reset_offset=False) as broker:
        prepare(broker)
        assert await refused(broker, topic="TopicX") == (
            17,
            "[reset-offset] reset offset failed, no topic in this broker. topic=TopicX",
        )
        assert await refused(broker, group="CG_x") == (1, "THe consumer group <CG_x> not exist")
        assert await refused(broker, timestamp=7) == (
            206,
            f"Consumer not online, so can not reset offset, Group: {GROUP} Topic: {TOPIC} Timestamp: 7",
        )


async def test_clients_too_old_for_a_reset_are_named_with_their_version() -> None:
    async with (
        offset_broker(use_server_side_reset_offset=False) as broker,
        broker.broker.client() as client,
    ):
        prepare(broker)
        await client.beat(heartbeat("c1", consumer()), version=27)
        said = "the client does not support this feature. version=V3_0_6"
        assert await refused(broker) == (1, said)
        assert await refused(broker, STATUS) == (1, said)


# Where clients are


async def test_clients_are_queried_for_their_offsets() -> None:
    queue = MessageQueue(TOPIC, "broker-w", 0)

    async def answer(client: Client, offset: int) -> None:
        command = await pushed(client)
        assert (command.code, command.is_oneway) == (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, False)
        assert command.ext_fields == {"topic": TOPIC, "group": GROUP}
        body = GetConsumerStatusBody(message_queue_table={queue: offset}).encode()
        client.send(command.response(ResponseCode.SUCCESS, body=body).encode())

    async with offset_broker() as broker, broker.broker.client() as first, broker.broker.client() as second:
        await first.beat(heartbeat("first", consumer()))
        await second.beat(heartbeat("second", consumer()))
        body, _, _ = await asyncio.gather(
            broker.body(STATUS, topic=TOPIC, group=GROUP), answer(first, 4), answer(second, 5)
        )
        assert GetConsumerStatusBody.decode(body).consumer_table == {"first": {queue: 4}, "second": {queue: 5}}
        body, _ = await asyncio.gather(
            broker.body(STATUS, topic=TOPIC, group=GROUP, clientAddr="second"), answer(second, 6)
        )
        assert GetConsumerStatusBody.decode(body).consumer_table == {"second": {queue: 6}}


async def test_a_client_that_fails_to_say_where_it_is_is_left_out() -> None:
    async def refuse(client: Client) -> None:
        command = await pushed(client)
        client.send(command.response(ResponseCode.SYSTEM_ERROR, remark="not now").encode())

    async with offset_broker() as broker, broker.broker.client() as client:
        await client.beat(heartbeat("c1", consumer()))
        body, _ = await asyncio.gather(broker.body(STATUS, topic=TOPIC, group=GROUP), refuse(client))
        assert body == b'{"consumerTable":{},"messageQueueTable":{}}'


async def test_no_client_is_queried_in_a_group_that_is_offline() -> None:
    async with offset_broker() as broker:
        said = f"No Any Consumer online in the consumer group: [{GROUP}]"
        assert await refused(broker, STATUS) == (1, said)
