"""What sends look like on the wire, what is made of their answers, and what is tried again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from orbitmq.client.errors import BrokerError, SendError, SendTimeoutError
from orbitmq.client.message import Message, SendStatus
from orbitmq.client.producer.producer import Producer
from orbitmq.client.producer.queue_selector import by_hash
from orbitmq.client.producer.wire import fill_template, properties_json, receipt_of, send_template
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.flags import RESPONSE
from support.client.producer_harness import HANG_UP, SILENCE, TOPIC, PeerBroker, peer_brokers
from support.remoting_harness import eventually, on_each_loop, serving
from support.wire_captures import Captured, all_captured

if TYPE_CHECKING:
    from orbitmq.client.message import Receipt

QUEUE = MessageQueue("t", "broker-a", 3)


def message(body: bytes = b"x", **more: object) -> Message:
    return Message(TOPIC, body, **more)  # type: ignore[arg-type]


# The wire


def java_sends() -> list[Captured]:
    sends = [
        frame
        for frame in all_captured()
        if frame.scenario.startswith("java_json")
        and "errors" not in frame.scenario
        and not frame.is_response
        and frame.code in {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
    ]
    assert len(sends) > 10
    return sends


@pytest.mark.parametrize("sent", java_sends(), ids=str)
def test_a_send_is_written_as_java_writes_it(sent: Captured) -> None:
    fields = sent.ext_fields
    most = fields.get("l")
    template = send_template(
        fields["a"],
        fields["b"],
        fields["c"],
        int(fields["d"]),
        MessageQueue(fields["b"], fields["n"], int(fields["e"])),
        is_batch=fields["m"] == "true",
        reconsume_times=int(fields["j"]),
        max_reconsume_times=None if most is None else int(most),
    )
    wire = fill_template(
        template,
        int(fields["f"]),
        int(fields["g"]),
        int(fields["h"]),
        properties_json(fields["i"]),
        sent.header["flag"],
        sent.header["opaque"],
        sent.frame[2],
    )
    theirs = sent.wire.replace(b'"language":"JAVA"', b'"language":"PYTHON"')
    # Two more letters; and whether characters beyond ASCII are escaped is the writer's choice.
    assert wire[8:] == theirs[8:] or json.loads(_header(wire)) == json.loads(_header(sent.wire)) | {
        "language": "PYTHON"
    }
    assert Command.decode(_frame(wire)).body == (sent.frame[2] or None)


def _frame(wire: bytes) -> tuple[int, bytes, bytes]:
    size = int.from_bytes(wire[5:8], "big")
    assert int.from_bytes(wire[:4], "big") == len(wire) - 4
    return wire[4], wire[8 : 8 + size], wire[8 + size :]


def _header(wire: bytes) -> bytes:
    return _frame(wire)[1]


def test_names_with_percent_signs_stay_what_they_are() -> None:
    template = send_template("ns%g", "%RETRY%ns%t", "TBW102", 4, MessageQueue("t", "50%d", 0))
    fields = Command.decode(_frame(fill_template(template, 0, 1, 2, b'"%s"', 0, 9, b"b"))).ext_fields
    assert (fields["a"], fields["b"], fields["n"], fields["i"]) == ("ns%g", "%RETRY%ns%t", "50%d", "%s")


def test_half_a_character_is_written_as_a_question_mark() -> None:
    assert properties_json("a\ud800b") == b'"a?b"'


# Answers


def answered(code: int, **fields: str) -> Receipt:
    answer = Command(code, flag=RESPONSE, ext_fields=fields, remark="why")
    return receipt_of(answer, QUEUE, "b:1", "ID")


def test_an_answer_says_where_a_message_is() -> None:
    receipt = answered(0, queueId="3", queueOffset="17", msgId="M", transactionId="T", MSG_REGION="R")
    assert (receipt.status, receipt.queue, receipt.queue_offset) == (SendStatus.SEND_OK, QUEUE, 17)
    assert (receipt.message_id, receipt.offset_message_id) == ("ID", "M")
    assert (receipt.transaction_id, receipt.region_id, receipt.recall_handle) == ("T", "R", None)


@pytest.mark.parametrize(("code", "status"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE")])
def test_a_message_that_is_stored_less_safely_is_sent(code: int, status: str) -> None:
    assert answered(code, queueId="3", queueOffset="0", msgId="M").status.name == status


def test_the_queue_of_a_receipt_is_the_one_the_broker_chose() -> None:
    assert answered(0, queueId="1", queueOffset="0", msgId="M").queue == MessageQueue("t", "broker-a", 1)


def test_a_refusal_has_the_code_and_the_remark() -> None:
    with pytest.raises(BrokerError, match="code 13: why") as refused:
        answered(13)
    assert (refused.value.code, refused.value.remark, refused.value.address) == (13, "why", "b:1")


def test_an_answer_without_a_place_is_an_error_that_says_that_it_was_stored() -> None:
    with pytest.raises(SendError, match="stored the message"):
        answered(0, queueId="x")


# What is tried again


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
async def test_after_these_refusals_another_broker_is_tried(code: int) -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        first, second = peers.brokers
        first.always = code
        receipts = [await producer.send(message()) for _ in range(4)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}
        assert len(second.sends) == 4
        assert len(first.sends) >= 1


async def test_after_other_refusals_nothing_is_tried() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        for broker in peers.brokers:
            broker.always = ResponseCode.MESSAGE_ILLEGAL
        with pytest.raises(BrokerError, match="not now") as refused:
            await producer.send(message())
        assert refused.value.code == 13
        assert peers.sends == 1


async def test_a_code_can_be_added_to_those_that_are_tried_again() -> None:
    async with (
        peer_brokers() as peers,
        Producer(peers.name_server, group="g", retry_response_codes=[13]) as producer,
    ):
        for broker in peers.brokers:
            broker.codes = [13]
        assert (await producer.send(message())).status is SendStatus.SEND_OK
        assert peers.sends == 3


async def test_three_attempts_are_made_and_the_error_says_where() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        for broker in peers.brokers:
            broker.always = ResponseCode.SYSTEM_BUSY
        with pytest.raises(SendError, match=r"after 3 attempts.*broker-[ab], broker-[ab].*code 2") as failed:
            await producer.send(message())
        assert isinstance(failed.value.__cause__, BrokerError)
        assert peers.sends == 3
        assert {len(broker.sends) for broker in peers.brokers} == {1, 2}


async def test_without_retries_there_is_one_attempt() -> None:
    async with (
        peer_brokers() as peers,
        Producer(peers.name_server, group="g", retry_times_when_send_failed=0) as producer,
    ):
        for broker in peers.brokers:
            broker.always = ResponseCode.SYSTEM_BUSY
        with pytest.raises(SendError, match="after 1 attempts"):
            await producer.send(message())
        assert peers.sends == 1


@on_each_loop
async def test_a_connection_that_breaks_makes_the_next_broker_the_one() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        peers.brokers[0].always = HANG_UP
        receipts = [await producer.send(message()) for _ in range(4)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}


@on_each_loop
async def test_a_broker_that_says_nothing_uses_up_the_time() -> None:
    async with peer_brokers("broker-a") as peers, Producer(peers.name_server, group="g") as producer:
        peers.brokers[0].always = SILENCE
        with pytest.raises(SendTimeoutError) as failed:
            await producer.send(message(), timeout=0.3)
        assert isinstance(failed.value, TimeoutError)
        assert peers.sends == 1


async def test_with_a_limit_for_one_attempt_the_next_broker_gets_a_chance() -> None:
    async with (
        peer_brokers() as peers,
        Producer(peers.name_server, group="g", send_msg_max_timeout_per_request=0.2) as producer,
    ):
        peers.brokers[0].always = SILENCE
        receipts = [await producer.send(message(), timeout=20) for _ in range(2)]
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}


async def test_a_send_to_one_queue_is_not_tried_elsewhere() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        peers.brokers[0].always = ResponseCode.SYSTEM_BUSY
        queue = MessageQueue(TOPIC, "broker-a", 1)
        with pytest.raises(SendError, match="after 1 attempts"):
            await producer.send(message(), queue=queue)
        with pytest.raises(SendError, match="after 1 attempts"):
            await producer.send(message(), selector=lambda queues, _, arg: queues[int(str(arg))], arg=0)
        assert len(peers.brokers[0].sends) == 2
        assert not peers.brokers[1].sends


async def test_if_asked_for_a_message_that_is_not_stored_safely_is_sent_elsewhere() -> None:
    option = {"retry_another_broker_when_not_store_ok": True}
    async with peer_brokers() as peers, Producer(peers.name_server, group="g", **option) as producer:  # type: ignore[arg-type]
        for broker in peers.brokers:
            broker.always = 10
        assert (await producer.send(message())).status is SendStatus.FLUSH_DISK_TIMEOUT
        assert peers.sends == 3
        for broker in peers.brokers:
            broker.always = None
            broker.codes = [10]
            broker.sends.clear()
        assert (await producer.send(message())).status is SendStatus.SEND_OK


async def test_a_refusal_after_an_unsafe_store_does_not_hide_that_it_was_stored() -> None:
    option = {"retry_another_broker_when_not_store_ok": True}
    async with peer_brokers("broker-a") as peers, Producer(peers.name_server, group="g", **option) as producer:  # type: ignore[arg-type]
        peers.brokers[0].codes = [11, 13]
        assert (await producer.send(message())).status is SendStatus.SLAVE_NOT_AVAILABLE


async def test_otherwise_it_is_sent_once() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        for broker in peers.brokers:
            broker.always = 12
        assert (await producer.send(message())).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert peers.sends == 1


# Without waiting


async def test_a_refusal_ends_a_send_that_nobody_waits_for() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        for broker in peers.brokers:
            broker.always = ResponseCode.SYSTEM_BUSY
        with pytest.raises(BrokerError, match="code 2"):
            await producer.send_nowait(message())
        assert peers.sends == 1


@on_each_loop
async def test_a_broken_connection_does_not_end_it() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        for queue in await producer.queues(TOPIC):
            await producer.send(message(), queue=queue)
        peers.brokers[0].always = HANG_UP
        receipts = await asyncio.gather(*(producer.send_nowait(message()) for _ in range(20)))
        assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}


async def test_it_is_tried_three_times() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        for broker in peers.brokers:
            broker.always = HANG_UP
        with pytest.raises(SendError, match="after 3 attempts"):
            await producer.send_nowait(message())
        assert peers.sends == 3


async def test_one_to_a_certain_queue_is_tried_there_again() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        peers.brokers[0].codes = [HANG_UP, HANG_UP]
        receipt = await producer.send_nowait(message(), queue=MessageQueue(TOPIC, "broker-a", 1))
        assert receipt.queue == MessageQueue(TOPIC, "broker-a", 1)
        assert len(peers.brokers[0].sends) == 3
        assert not peers.brokers[1].sends


async def test_its_time_is_limited_too() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        for broker in peers.brokers:
            broker.always = SILENCE
        with pytest.raises(SendTimeoutError):
            await producer.send_nowait(message(), timeout=0.2)


async def test_one_that_is_cancelled_is_not_tried_again() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        await producer.send(message())
        peers.brokers[0].holds = peers.brokers[1].holds = True
        future = producer.send_nowait(message())
        await eventually(lambda: peers.sends == 2)
        future.cancel()
        for broker in peers.brokers:
            broker.always = HANG_UP
            for connection, _, _ in broker.held:
                connection.abort()
            broker.held.clear()
        await eventually(lambda: producer._in_flight.count == 0)
        assert peers.sends == 2


# Brokers that are avoided


async def test_a_broker_that_failed_is_avoided_if_that_is_wanted() -> None:
    async with (
        peer_brokers() as peers,
        Producer(peers.name_server, group="g", send_latency_fault_enable=True) as producer,
    ):
        first, second = peers.brokers
        first.always = ResponseCode.SYSTEM_BUSY
        while not first.sends:
            await producer.send(message())
        first.always = None
        seen = len(first.sends)
        for _ in range(12):
            await producer.send(message())
        await asyncio.gather(*(producer.send_nowait(message()) for _ in range(12)))
        assert len(first.sends) == seen
        assert len(second.sends) >= 24


async def test_a_broker_that_failed_is_sent_to_again_at_once_otherwise() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        first, _ = peers.brokers
        first.codes = [ResponseCode.SYSTEM_BUSY]
        for _ in range(12):
            await producer.send(message())
        assert len(first.sends) > 4


async def test_a_probe_finds_out_that_a_broker_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.client.producer.latency_fault.DETECT_PAUSE", 0.01)
    options = {"send_latency_fault_enable": True, "start_detector_enable": True, "detect_interval": 0.01}
    async with peer_brokers() as peers, Producer(peers.name_server, group="g", **options) as producer:  # type: ignore[arg-type]
        first, _ = peers.brokers
        first.codes = [ResponseCode.SYSTEM_BUSY]
        while not first.sends:
            await producer.send(message())
        faults = producer._sender.faults
        assert faults is not None
        await eventually(lambda: faults.is_reachable("broker-a"))
        assert any(request.code == RequestCode.GET_MAX_OFFSET for request in first.others)


# Routes


async def test_after_a_failure_the_route_is_asked_for_at_once() -> None:
    async with peer_brokers("broker-a") as peers, Producer(peers.name_server, group="g") as producer:
        await producer.send(message())
        route = producer._instance.routes[TOPIC]
        await peers.serve("broker-a", 5)
        peers.brokers[0].codes = [ResponseCode.SYSTEM_BUSY]
        await producer.send(message())
        await eventually(lambda: producer._instance.routes[TOPIC] is not route)
        assert len(await producer.queues(TOPIC)) == 5


async def test_a_master_that_moved_is_found_at_its_new_address() -> None:
    async with peer_brokers("broker-a") as peers, Producer(peers.name_server, group="g") as producer:
        await producer.send(message())
        old, new = peers.brokers[0], PeerBroker("broker-a")
        async with serving(new.handlers) as new.server:
            await old.server.stop(0)
            await peers.serve("broker-a", 2, address=new.address)
            await producer.send(message(b"there"))
            await producer.send_nowait(message(b"there too"))
            assert new.bodies == [b"there", b"there too"]


async def test_a_message_with_a_sharding_key_goes_where_java_sends_it() -> None:
    async with peer_brokers(queues=3) as peers, Producer(peers.name_server, group="g") as producer:
        queues = await producer.queues(TOPIC)
        assert len(queues) == 6
        for key in ("order-1", "order-2", "订单"):
            expected = by_hash(queues, message(), key)
            for _ in range(3):
                assert (await producer.send(message(sharding_key=key))).queue == expected
                assert (await producer.send_nowait(message(sharding_key=key))).queue == expected
                assert (await producer.send(message(), selector=by_hash, arg=key)).queue == expected


async def test_a_broker_without_an_address_is_an_error_that_names_it() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        with pytest.raises(SendError, match="'broker-z'"):
            await producer.send(message(), queue=MessageQueue(TOPIC, "broker-z", 0))


async def test_brokers_hear_heartbeats_and_goodbyes_in_python() -> None:
    async with peer_brokers() as peers:
        async with Producer(peers.name_server, group="g") as producer:
            await producer.send(message())
            await producer._instance.heartbeat_all()
        said = [request for broker in peers.brokers for request in broker.others]
        assert {request.language.name for request in said} == {"PYTHON"}
        goodbyes = [request for request in said if request.code == RequestCode.UNREGISTER_CLIENT]
        assert [goodbye.ext_fields["producerGroup"] for goodbye in goodbyes] == ["g", "g"]
        beats = [json.loads(request.body or b"") for request in said if request.code == RequestCode.HEART_BEAT]
        assert {"groupName": "g"} in beats[0]["producerDataSet"]
