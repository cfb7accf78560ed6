"""Timer over the wire: responses to sends, recalls, and requests of tools and slaves."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import KVTable, TimerMetricsSerializeWrapper, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.recall_handle import RecallHandle, decode_recall_handle
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.timer.checkpoint import TimerCheckpoint
from orbitmq.testing import ManualClock
from support.broker.client_registry_harness import T0
from support.broker.requests import PRODUCERS, TOPIC, Talker, bodies, properties_of, send_request, stored, talk
from support.remoting_harness import eventually
from support.store import golden

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command

RECALL = {"recallMessageEnable": True}
SYNC = {"flushDiskType": "SYNC_FLUSH"}


async def sent(client: Talker, seconds: int = 60, key: str = "K", **more: object) -> Command:
    return await client.stores(properties={"UNIQ_KEY": key, "TIMER_DELAY_SEC": str(seconds)}, **more)


async def recalls(client: Talker, handle: str, topic: str = TOPIC) -> Command:
    return await client.asks(RequestCode.RECALL_MESSAGE, producerGroup=PRODUCERS, topic=topic, recallHandle=handle)


# Sends


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("settings", [{}, SYNC])
async def test_the_send_response_carries_a_recall_handle(binary: bool, settings: dict[str, str]) -> None:
    async with talk(**settings) as (broker, client):
        answer = await sent(client, queueId=2, binary=binary)
        (parked,) = stored(broker, TIMER_TOPIC)

        told = dict(answer.ext_fields)
        assert decode_recall_handle(told.pop("recallHandle")) == RecallHandle(
            TOPIC, "broker-a", str(T0 + 59_001), "K"
        )
        assert told == {
            "msgId": broker.store.message_id(parked.physical_offset),
            "queueId": "2",
            "queueOffset": "0",
            "transactionId": "K",
            "TRACE_ON": "true",
            "MSG_REGION": "DefaultRegion",
        }
        assert properties_of(parked)["TIMER_OUT_MS"] == str(T0 + 59_000)
        assert (properties_of(parked)["REAL_TOPIC"], properties_of(parked)["REAL_QID"]) == (TOPIC, "2")


async def test_fields_are_in_the_order_of_java() -> None:
    async with talk() as (_, client):
        assert list((await sent(client)).ext_fields) == [
            *("queueId", "transactionId", "msgId", "TRACE_ON", "MSG_REGION", "recallHandle", "queueOffset")
        ]
        assert list((await sent(client, binary=True)).ext_fields) == [
            *("msgId", "queueId", "queueOffset", "transactionId", "recallHandle", "TRACE_ON", "MSG_REGION")
        ]


async def test_a_oneway_timer_send_gets_no_response() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig(TOPIC, 4, 4))
        opaque = client.posts(send_request(properties={"TIMER_DELAY_SEC": "60"}, oneway=True))
        await client.pass_time()
        assert opaque not in client.answers
        assert len(stored(broker, TIMER_TOPIC)) == 1


async def test_a_time_too_far_away_is_refused_in_apaches_words() -> None:
    async with talk(timerMaxDelaySec=100) as (broker, client):
        answer = await client.sends(properties={"TIMER_DELAY_SEC": "101"})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark == (
            "timer message illegal, the delay time should not be bigger than the max delay 100000ms; "
            "or if set del msg, the delay time should be bigger than the current time"
        )
        assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert stored(broker, TIMER_TOPIC) == []


async def test_a_crowded_slot_is_refused_in_apaches_words() -> None:
    async with talk(timerCongestNumEachSlot=1) as (broker, client):
        for number in range(2):
            await sent(client, key=str(number))
        assert broker.timer is not None
        broker.timer.run_slice()
        answer = await client.sends(properties={"TIMER_DELAY_SEC": "60"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == (
            "timer message is under flow control, max num limit is 2 or the current value is greater than 1 "
            "and less than 2, trigger random flow control"
        )


async def test_a_held_pull_is_woken_when_a_timer_message_is_delivered() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        await client.stores(b"first")
        await sent(client, 5, body=b"later")
        await client.subscribes()
        asked = client.asks(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
        assert (await asked).ext_fields["offset"] == "1"
        clock.advance(6000)
        await eventually(lambda: len(stored(broker)) == 2)
        assert bodies(await client.pulls(1)) == [b"later"]


# Recalls


async def test_a_message_is_recalled_by_its_handle() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock, **RECALL) as (broker, client):
        handles = [(await sent(client, key=key)).ext_fields["recallHandle"] for key in ("A", "B")]
        answer = await recalls(client, handles[0])
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
        assert answer.ext_fields == {"msgId": "A", "MSG_REGION": "DefaultRegion"}
        assert broker.timer is not None
        broker.timer.run_slice()
        assert (broker.timer.waiting, broker.timer.counts.of(TOPIC)) == (1, 1)
        clock.advance(61_000)
        await eventually(lambda: stored(broker))
        assert [properties_of(record)["UNIQ_KEY"] for record in stored(broker)] == ["B"]


async def test_a_recall_marker_equals_apaches() -> None:
    theirs = next(
        row for row in golden.expected_records("basic") if row.get("properties", {}).get("TAGS") == "_RECALL_TAG_"
    )
    captured = theirs["properties"]
    key = captured["UNIQ_KEY"]
    clock = ManualClock(int(captured["BORN_TIMESTAMP"]))
    async with talk(clock=clock, **RECALL) as (broker, client):
        await client.stores(b"made", topic="TopicTimer")
        handle = RecallHandle("TopicTimer", "broker-a", captured["TIMER_DELIVER_MS"], key).encode()
        answer = await client.asks(
            RequestCode.RECALL_MESSAGE, producerGroup=captured["PGROUP"], topic="TopicTimer", recallHandle=handle
        )
        assert answer.code == ResponseCode.SUCCESS
        (marker,) = stored(broker, TIMER_TOPIC)
        assert properties_of(marker) == captured
        assert marker.size == theirs["storeSize"]
        assert marker.body == b"0"


async def test_a_recall_key_may_carry_its_topic() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock, appendTopicForTimerDeleteKey=True, **RECALL) as (broker, client):
        await recalls(client, (await sent(client)).ext_fields["recallHandle"])
        assert properties_of(stored(broker, TIMER_TOPIC)[1])["TIMER_DEL_UNIQKEY"] == f"{TOPIC}+K"
        await sent(client, key="other")
        clock.advance(61_000)
        await eventually(lambda: stored(broker))
        assert [properties_of(record)["UNIQ_KEY"] for record in stored(broker)] == ["other"]


async def test_under_sync_flush_a_recall_is_answered_after_its_flush() -> None:
    async with talk(**RECALL, **SYNC) as (broker, client):
        answer = await recalls(client, (await sent(client)).ext_fields["recallHandle"])
        assert answer.code == ResponseCode.SUCCESS
        assert broker.store.log.flushed == broker.store.log.end


@pytest.mark.parametrize(
    ("handle", "remark"),
    [
        ("", "recall handle is invalid"),
        ("not base 64!", "recall handle is invalid"),
        (base64.urlsafe_b64encode(b"v2 a b c d").decode(), "recall handle is invalid"),
        (base64.urlsafe_b64encode(b"v1 a b c").decode(), "recall handle is invalid"),
        (RecallHandle("Other", "broker-a", str(T0 + 5000), "K").encode(), "recall failed, topic not match"),
        (RecallHandle(TOPIC, "b", str(T0 + 5000), "K").encode(), "recall failed, broker service not available"),
        (RecallHandle(TOPIC, "broker-a", str(T0), "K").encode(), "recall failed, timestamp invalid"),
        (RecallHandle(TOPIC, "broker-a", "soon", "K").encode(), "recall failed, timestamp invalid"),
        (RecallHandle(TOPIC, "broker-a", str(T0 + 259_200_000), "K").encode(), "recall failed, timestamp invalid"),
    ],
)
async def test_invalid_handles_are_refused_in_apaches_words(handle: str, remark: str) -> None:
    async with talk(**RECALL) as (_, client):
        await client.stores()
        answer = await recalls(client, handle)
        assert (answer.code, answer.remark) == (ResponseCode.ILLEGAL_OPERATION, remark)
        assert answer.ext_fields == {"MSG_REGION": "DefaultRegion"}


async def test_recalls_are_refused_for_missing_topics() -> None:
    async with talk(**RECALL) as (_, client):
        answer = await recalls(client, "x", "Nowhere")
        assert (answer.code, answer.remark) == (17, "recall failed, the topic[Nowhere] not exist")


async def test_recalls_are_refused_when_disabled() -> None:
    async with talk() as (_, client):
        answer = await recalls(client, "x")
        assert (answer.code, answer.remark) == (
            16,
            "recall failed, operation is forbidden; recallMessageEnable=false in its settings, set "
            "recallMessageEnable=true",
        )


async def test_a_read_only_broker_may_still_accept_recalls() -> None:
    async with talk(brokerPermission=4, **RECALL) as (broker, client):
        await client.stores()
        handle = RecallHandle(TOPIC, "broker-a", str(T0 + 5000), "K").encode()
        assert (await recalls(client, handle)).code == ResponseCode.SUCCESS
        broker.settings.broker.allow_recall_when_broker_not_writeable = False
        answer = await recalls(client, handle)
        assert (answer.code, answer.remark) == (14, "recall failed, broker service not available")


async def test_recalls_are_refused_without_a_timer() -> None:
    async with talk(timerWheelEnable=False, **RECALL) as (_, client):
        await client.stores()
        answer = await recalls(client, RecallHandle(TOPIC, "broker-a", str(T0 + 5000), "K").encode())
        assert (answer.code, answer.remark) == (1, "recall failed, execute error")


async def test_a_recall_without_its_fields_is_refused() -> None:
    async with talk(**RECALL) as (_, client):
        assert (await client.asks(RequestCode.RECALL_MESSAGE, topic=TOPIC)).code == ResponseCode.SYSTEM_ERROR


# Handles


def test_handles_are_read_with_and_without_padding() -> None:
    handle = RecallHandle("t", "b", "1", "k")
    for text in (handle.encode(), handle.encode().rstrip("=")):
        assert decode_recall_handle(text) == handle


@pytest.mark.parametrize("text", ["", "=", "a", "ä", "+/+/", "djEgYSBi\n", "djEgYSBi"])
def test_a_malformed_handle_raises_an_error(text: str) -> None:
    with pytest.raises(ProtocolError, match="recall handle is invalid"):
        decode_recall_handle(text)


# Requests of tools and slaves


async def test_slaves_get_timer_progress_and_counts() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        for key in ("A", "B"):
            await sent(client, 100, key)
        assert broker.timer is not None
        broker.timer.run_slice()
        clock.advance(5000)
        broker.timer.run_slice()
        point = await client.asks(RequestCode.GET_TIMER_CHECK_POINT)
        metrics = await client.asks(RequestCode.GET_TIMER_METRICS)
        await broker.timer._save()

    assert point.body is not None
    assert len(point.body) == 56
    saved = TimerCheckpoint.load(broker.disk, "/messages/config/timercheck")
    assert int.from_bytes(point.body[:8], "big") == T0 + 5000 <= saved.read_time_ms
    assert int.from_bytes(point.body[16:24], "big") == saved.queue_offset == 2
    assert metrics.body is not None
    table = TimerMetricsSerializeWrapper.decode(metrics.body)
    assert {topic: metric.count for topic, metric in table.timing_count.items()} == {TOPIC: 2}


async def test_a_deleted_topic_has_no_timer_count() -> None:
    async with talk() as (broker, client):
        await sent(client)
        assert broker.timer is not None
        broker.timer.run_slice()
        assert broker.timer.counts.of(TOPIC) == 1
        answer = await client.asks(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        assert answer.code == ResponseCode.SUCCESS
        assert TOPIC not in broker.timer.counts.table().timing_count


async def test_timer_requests_fail_without_a_timer() -> None:
    async with talk(timerWheelEnable=False) as (_, client):
        for code, remark in (
            (RequestCode.GET_TIMER_CHECK_POINT, "The checkpoint is null"),
            (RequestCode.GET_TIMER_METRICS, "The timer message store is null"),
        ):
            answer = await client.asks(code)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_runtime_info_shows_timer_counts_and_lag() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        assert broker.timer is not None
        broker.store.config.timer_stop_enqueue = True
        await sent(client, 100, "A")
        shown = await _figures(client)
        assert (shown["timerOffsetBehind"], shown["timerCongestNum"]) == ("1", "0")
        broker.store.config.timer_stop_enqueue = False
        broker.timer.run_slice()
        shown = await _figures(client)
        assert (shown["timerOffsetBehind"], shown["timerCongestNum"], shown["timerReadBehind"]) == ("0", "1", "0")
        broker.store.config.timer_stop_dequeue = True
        clock.advance(200_000)
        broker.timer.rates.sample(clock.now_ms())
        shown = await _figures(client)
        assert shown["timerReadBehind"] == "200"
        assert float(shown["timerEnqueueTps"]) > 0
        assert shown["timerDequeueTps"] == "0.0"


async def _figures(client: Talker) -> dict[str, str]:
    answer = await client.asks(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert answer.body is not None
    return KVTable.decode(answer.body).table
