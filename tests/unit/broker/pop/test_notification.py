"""Questions whether there is something to pop, which wait for it, and looks that take nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.long_polling import table
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.record import iter_records
from support.broker.pop_harness import popper_of, popping
from support.broker.requests import CONSUMERS, TOPIC
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command
    from support.broker.pop_harness import Popper


@pytest.fixture(autouse=True)
def _time_that_passes_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SWEEP_SECONDS", 0.001)


async def ask(client: Popper, **fields: object) -> Command:
    said = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": -1, "pollTime": 0, "bornTime": 0, **fields}
    return await client.asks(RequestCode.NOTIFICATION, **said)


async def test_there_is_something_or_there_is_not() -> None:
    async with popping() as ends:
        await ends.client.fills("a", queueId=2)
        answer = await ask(ends.client)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
        assert answer.ext_fields == {"hasMsg": "true", "pollingFull": "false"}
        assert (await ask(ends.client, queueId=1)).ext_fields["hasMsg"] == "false"
        await ends.client.gets()
        assert (await ask(ends.client)).ext_fields["hasMsg"] == "false"


async def test_retries_count_as_available() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        ends.wait()
        assert (await ask(ends.client, queueId=3)).ext_fields["hasMsg"] == "true"


async def test_only_messages_that_are_wanted_count() -> None:
    async with popping() as ends:
        await ends.client.fills("a:x")
        assert (await ask(ends.client, expType="TAG", exp="y")).ext_fields["hasMsg"] == "false"
        assert (await ask(ends.client, expType="TAG", exp="x")).ext_fields["hasMsg"] == "true"


async def test_an_orderly_queue_has_no_messages_until_its_pop_is_acknowledged() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b")
        await ends.client.gets(order=True, most=1)
        assert (await ask(ends.client, order=True)).ext_fields["hasMsg"] == "false"
        assert (await ask(ends.client)).ext_fields["hasMsg"] == "true"


async def test_the_answer_can_wait_for_a_message() -> None:
    async with popping() as ends, popper_of(ends.broker) as other:
        await ends.client.fills("a")
        await ends.client.gets()
        waiting = asyncio.create_task(ask(ends.client, pollTime=10_000))
        await eventually(lambda: len(ends.broker.pop.notifications.held) == 1)
        await other.fills("b")
        assert (await waiting).ext_fields == {"hasMsg": "true", "pollingFull": "false"}


async def test_a_notification_is_held_no_longer_than_its_poll_time() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        waiting = asyncio.create_task(ask(ends.client, pollTime=10_000))
        await eventually(lambda: len(ends.broker.pop.notifications.held) == 1)
        ends.clock.advance(10_000)
        assert (await waiting).ext_fields == {"hasMsg": "false", "pollingFull": "false"}


async def test_a_look_takes_nothing() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b", "c")
        fields = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": 0, "maxMsgNums": 2}
        for _ in range(2):
            answer = await ends.client.asks(RequestCode.PEEK_MESSAGE, **fields)
            assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
            assert [record.body for record in iter_records(answer.body or b"")] == [b"a", b"b"]
            assert answer.ext_fields == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "3"}
        answer = await ends.client.asks(RequestCode.PEEK_MESSAGE, **{**fields, "queueId": 1})
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")


@pytest.mark.parametrize("code", [RequestCode.NOTIFICATION, RequestCode.PEEK_MESSAGE, RequestCode.POLLING_INFO])
async def test_what_is_not_there_is_refused(code: RequestCode) -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        fields = {"consumerGroup": CONSUMERS, "topic": "nowhere", "queueId": 0, "maxMsgNums": 1}
        assert (await ends.client.asks(code, **fields)).code == ResponseCode.TOPIC_NOT_EXIST
        fields |= {"topic": TOPIC, "queueId": 44}
        assert (await ends.client.asks(code, **fields)).code == ResponseCode.INVALID_PARAMETER
