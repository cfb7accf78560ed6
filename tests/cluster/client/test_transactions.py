"""Transactions with the client: what is committed arrives once, what is not never does, whoever fails."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq as omq
from orbitmq import Message
from orbitmq.aio import (
    InvalidMessageError,
    NotRunningError,
    Producer,
    SendError,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from orbitmq.client.transaction import check_responder as transaction_checks
from orbitmq.protocol.codes import RequestCode
from orbitmq.testing import LocalCluster
from support.client.cluster_harness import nothing_left, nothing_left_on_loop
from support.client.producer_harness import HANG_UP, PeerBroker, peer_brokers
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.aio import ReceivedMessage
    from orbitmq.client.transaction.transaction import Check

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
TOPIC = "orders"
LONG = 60
"""Seconds after which a broker has asked."""


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as running:
        yield running


def never(_: ReceivedMessage) -> TransactionState:
    raise AssertionError("nobody should have asked")


def producer_of(cluster: LocalCluster, check: Check = never, **options: Any) -> TransactionProducer:
    return TransactionProducer(cluster.name_server, group="shop", check=check, **options)


def bodies(cluster: LocalCluster, topic: str = TOPIC) -> list[bytes]:
    return [message.body for message in cluster.messages(topic)]


# Blocks


async def test_a_block_that_ends_well_delivers_the_message(cluster: LocalCluster) -> None:
    async with producer_of(cluster) as producer:
        async with producer.transaction(Message(TOPIC, b"paid", keys="42", tags="t", flag=3)) as transaction:
            assert transaction.receipt is not None
            assert transaction.transaction_id == transaction.receipt.message_id
            await asyncio.sleep(0)
            assert bodies(cluster) == []
        assert transaction.is_settled
        assert transaction.state is COMMIT
        (message,) = cluster.messages(TOPIC)
        assert (message.body, message.keys, message.tags, message.flag) == (b"paid", ["42"], "t", 3)
        assert message.message_id == transaction.transaction_id
        await cluster.advance(LONG)
        assert bodies(cluster) == [b"paid"]


async def test_an_exception_takes_the_message_back(cluster: LocalCluster) -> None:
    async with producer_of(cluster) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(TOPIC, b"x")) as transaction:
                raise ZeroDivisionError
        assert (transaction.state, transaction.is_settled) == (ROLLBACK, True)
        await cluster.advance(LONG)
        assert bodies(cluster) == []


async def test_a_block_may_decide_otherwise(cluster: LocalCluster) -> None:
    async with producer_of(cluster) as producer:
        async with producer.transaction(Message(TOPIC, b"back")) as transaction:
            transaction.rollback()
        assert transaction.is_settled
        async with producer.transaction(Message(TOPIC, b"forth")) as transaction:
            transaction.rollback()
            transaction.commit()
        await cluster.advance(LONG)
        assert bodies(cluster) == [b"forth"]


@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK])
async def test_who_does_not_know_is_asked_later(cluster: LocalCluster, answer: TransactionState) -> None:
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return answer

    async with producer_of(cluster, check) as producer:
        message = Message(TOPIC, b"?" * 10_000, keys="k", properties={"amount": "9"})
        async with producer.transaction(message) as transaction:
            transaction.unknown()
        assert (transaction.state, transaction.is_settled) == (UNKNOWN, False)
        await cluster.advance(LONG)
        await eventually(lambda: asked)
        await eventually(lambda: bodies(cluster) == ([b"?" * 10_000] if answer is COMMIT else []))
        await cluster.advance(LONG)
        (question,) = asked
        assert (question.topic, question.body, question.keys) == (TOPIC, b"?" * 10_000, ["k"])
        assert question.message_id == transaction.transaction_id
        assert question.properties["amount"] == "9"
        assert question.broker_name == "broker-a"


async def test_who_does_not_know_and_fails_is_asked_as_well(cluster: LocalCluster) -> None:
    async with producer_of(cluster, lambda _: COMMIT) as producer:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with producer.transaction(Message(TOPIC, b"x")) as transaction:
                transaction.unknown()
                raise ZeroDivisionError
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster) == [b"x"])


async def test_a_task_that_is_cancelled_leaves_its_transaction_open(cluster: LocalCluster) -> None:
    began = asyncio.Event()

    async def work(producer: TransactionProducer) -> None:
        async with producer.transaction(Message(TOPIC, b"x")):
            began.set()
            await asyncio.sleep(3600)

    async with producer_of(cluster, lambda _: COMMIT) as producer:
        task = asyncio.create_task(work(producer))
        await began.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert bodies(cluster) == []
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster) == [b"x"])


async def test_a_transaction_is_begun_once(cluster: LocalCluster) -> None:
    async with producer_of(cluster) as producer:
        transaction = producer.transaction(Message(TOPIC, b"x"))
        async with transaction:
            pass
        with pytest.raises(NotRunningError, match="only once"):
            await transaction.begin()


async def test_the_message_itself_stays_a_plain_one(cluster: LocalCluster) -> None:
    async with producer_of(cluster) as producer:
        message = Message(TOPIC, b"x")
        async with producer.transaction(message) as transaction:
            transaction.rollback()
        receipt = await producer.send(message)
        assert receipt.message_id == transaction.transaction_id
        assert bodies(cluster) == [b"x"]


async def test_brokers_may_be_told_to_ask_later(cluster: LocalCluster) -> None:
    asked: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return COMMIT

    async with producer_of(cluster, check) as producer:
        async with producer.transaction(Message(TOPIC, b"slow"), check_after=600) as transaction:
            for _ in range(3):
                await cluster.advance(LONG)
        assert transaction.is_settled
        await cluster.advance(1000)
        await cluster.advance(LONG)
        assert bodies(cluster) == [b"slow"]
        assert asked == []


# A function for the local transaction


async def test_a_function_does_the_local_transaction(cluster: LocalCluster) -> None:
    async def pay(transaction: Any) -> TransactionState:
        assert bodies(cluster) == []
        assert transaction.message.body == b"x"
        return COMMIT

    async with producer_of(cluster, local_transaction=pay) as producer:
        receipt = await producer.send_in_transaction(Message(TOPIC, b"x"))
        assert (receipt.state, receipt.is_settled, receipt.receipt.status) == (COMMIT, True, SendStatus.SEND_OK)
        assert bodies(cluster) == [b"x"]


async def test_a_plain_function_does_it_in_a_thread(cluster: LocalCluster) -> None:
    threads: list[threading.Thread] = []

    def refuse(_: object) -> TransactionState:
        threads.append(threading.current_thread())
        return ROLLBACK

    async with producer_of(cluster) as producer:
        receipt = await producer.send_in_transaction(Message(TOPIC, b"x"), refuse)
        assert (receipt.state, receipt.is_settled) == (ROLLBACK, True)
        assert threads != [threading.main_thread()]
        await cluster.advance(LONG)
        assert bodies(cluster) == []


async def test_a_function_that_fails_leaves_it_to_the_check(cluster: LocalCluster) -> None:
    async def fail(_: object) -> TransactionState:
        raise ZeroDivisionError

    async with producer_of(cluster, lambda _: COMMIT) as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(Message(TOPIC, b"x"), fail)
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster) == [b"x"])


async def test_what_a_function_says_has_to_be_a_state(cluster: LocalCluster) -> None:
    async def mumble(_: object) -> Any:
        return True

    async def say_nothing(_: object) -> None:
        return None

    async with producer_of(cluster, lambda _: ROLLBACK) as producer:
        with pytest.raises(TypeError, match="not True"):
            await producer.send_in_transaction(Message(TOPIC, b"x"), mumble)
        receipt = await producer.send_in_transaction(Message(TOPIC, b"x"), say_nothing)
        assert (receipt.state, receipt.is_settled) == (UNKNOWN, False)
        with pytest.raises(InvalidMessageError, match="no local transaction"):
            await producer.send_in_transaction(Message(TOPIC, b"x"))


# Being asked


async def test_a_check_that_fails_or_does_not_know_is_asked_again(cluster: LocalCluster) -> None:
    answers: list[Any] = [ZeroDivisionError(), None, "yes", COMMIT]
    asked: list[str] = []

    def check(message: ReceivedMessage) -> Any:
        asked.append(threading.current_thread().name)
        answer = answers[len(asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with producer_of(cluster, check) as producer:
        async with producer.transaction(Message(TOPIC, b"x")) as transaction:
            transaction.unknown()
        for number in range(1, 5):
            await cluster.advance(LONG)
            await eventually(lambda: len(asked) == number)  # noqa: B023
        await eventually(lambda: bodies(cluster) == [b"x"])
        assert all(name.startswith("TransactionCheckThread_shop_") for name in asked)


async def test_another_producer_of_the_group_answers_for_one_that_is_gone(cluster: LocalCluster) -> None:
    gone = producer_of(cluster)
    await gone.start()
    transaction = gone.transaction(Message(TOPIC, b"orphan"))
    await transaction.begin()
    await gone.close()
    async with producer_of(cluster, lambda _: COMMIT, topics=(TOPIC,)):
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster) == [b"orphan"])


async def test_a_producer_without_transactions_is_asked_in_vain(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer_of(cluster) as producer:
        await producer.transaction(Message(TOPIC, b"x")).begin()
    async with Producer(cluster.name_server, group="shop", topics=(TOPIC,)):
        await cluster.advance(LONG)
    async with producer_of(cluster, lambda _: COMMIT, topics=(TOPIC,)):
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster) == [b"x"])


async def test_too_many_questions_are_left_for_later(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_checks, "MAX_WAITING", 2)
    let_go = asyncio.Event()

    async def check(_: ReceivedMessage) -> TransactionState:
        await let_go.wait()
        return COMMIT

    async with producer_of(cluster, check) as producer:
        for number in range(5):
            await producer.transaction(Message(TOPIC, b"%d" % number)).begin()
        await cluster.advance(LONG)
        await asyncio.sleep(0.05)
        let_go.set()
        await eventually(lambda: len(bodies(cluster)) == 3)
        await cluster.advance(LONG)
        await eventually(lambda: len(bodies(cluster)) == 5)


async def test_several_are_checked_at_a_time_if_wanted(cluster: LocalCluster) -> None:
    together = asyncio.Barrier(3)

    async def check(_: ReceivedMessage) -> TransactionState:
        await together.wait()
        return COMMIT

    async with producer_of(cluster, check, check_at_a_time=3) as producer:
        for number in range(3):
            await producer.transaction(Message(TOPIC, b"%d" % number)).begin()
        await cluster.advance(LONG)
        await eventually(lambda: len(bodies(cluster)) == 3)


async def test_transactions_in_a_namespace(cluster: LocalCluster) -> None:
    asked: list[tuple[str, str]] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append((message.topic, message.properties["PGROUP"]))
        return COMMIT

    async with producer_of(cluster, check, namespace="tenant") as producer:
        async with producer.transaction(Message(TOPIC, b"a")):
            pass
        async with producer.transaction(Message(TOPIC, b"b")) as transaction:
            transaction.unknown()
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster, "tenant%orders") == [b"a", b"b"])
    assert asked == [(TOPIC, "tenant%shop")]


async def test_brokers_and_producers_leave_nothing_behind() -> None:
    async with (
        nothing_left_on_loop(),
        LocalCluster() as cluster,
        producer_of(cluster, lambda _: COMMIT) as producer,
    ):
        async with producer.transaction(Message(TOPIC, b"x")) as transaction:
            transaction.unknown()
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster) == [b"x"])


# When brokers fail


async def test_a_power_cut_between_half_and_end_loses_nothing() -> None:
    async with (
        LocalCluster(settings={"flushDiskType": "SYNC_FLUSH"}) as cluster,
        producer_of(cluster, lambda _: COMMIT) as producer,
    ):
        async with producer.transaction(Message(TOPIC, b"x")) as transaction:
            await cluster.kill()
            # The end goes nowhere, and nobody fails because of that.
        assert not transaction.is_settled
        await cluster.start("broker-a")
        assert bodies(cluster) == []
        await producer.send(Message("other", b"so that it is known again"))
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster) == [b"x"])


async def test_a_broker_that_restarts_asks_about_what_was_open(cluster: LocalCluster) -> None:
    async with producer_of(cluster, lambda _: COMMIT) as producer:
        await producer.transaction(Message(TOPIC, b"x")).begin()
        await cluster.restart()
        await producer.send(Message("other", b"so that it is known again"))
        await cluster.advance(LONG)
        await eventually(lambda: bodies(cluster) == [b"x"])


class EndingBroker(PeerBroker):
    """A broker that hears of ends."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.end_codes: list[int] = []

    @property
    def handlers(self) -> dict[int, Any]:
        return {**super().handlers, RequestCode.END_TRANSACTION: self._end}

    def _end(self, connection: Any, header: Any, body: bytes, serialize_type: int) -> Any:
        answer = self._other(connection, header, body, serialize_type)
        code = self.end_codes.pop(0) if self.end_codes else 0
        if code == HANG_UP:
            connection.abort()
        return self.others[-1].response(code, remark="no").encode() if code else answer

    @property
    def ends(self) -> list[dict[str, str]]:
        return [one.ext_fields for one in self.others if one.code == RequestCode.END_TRANSACTION]


async def test_the_end_says_what_javas_clients_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.client.producer_harness.PeerBroker", EndingBroker)
    async with peer_brokers("broker-a") as peers:
        (broker,) = peers.brokers
        assert isinstance(broker, EndingBroker)
        server = f"127.0.0.1:{peers.names.port}"
        async with TransactionProducer(server, group="shop", check=never) as producer:
            await producer.send(Message(TOPIC, b"first"))
            async with producer.transaction(Message(TOPIC, b"x")) as transaction:
                pass
            (half,) = [send for send in broker.sends if send.body == b"x"]
            assert half.ext_fields["f"] == "4"
            assert "TRAN_MSG\x01true\x02PGROUP\x01shop\x02" in half.ext_fields["i"]
            assert broker.ends == [
                {
                    "topic": TOPIC,
                    "producerGroup": "shop",
                    "tranStateTableOffset": "1",
                    "commitLogOffset": "1",
                    "commitOrRollback": "8",
                    "fromTransactionCheck": "false",
                    "msgId": transaction.transaction_id,
                    "transactionId": transaction.transaction_id,
                    "bname": "broker-a",
                }
            ]
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message(TOPIC, b"x")):
                    raise ZeroDivisionError("by 0")
            assert broker.ends[-1]["commitOrRollback"] == "12"
            assert broker.others[-1].remark == "executeLocalTransactionBranch exception: ZeroDivisionError: by 0"
            async with producer.transaction(Message(TOPIC, b"x")) as transaction:
                transaction.unknown()
            await eventually(lambda: broker.ends[-1]["commitOrRollback"] == "0")
            assert broker.others[-1].is_oneway


@pytest.mark.parametrize("code", [1, 604, HANG_UP])
async def test_an_end_that_fails_is_left_to_the_check(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("support.client.producer_harness.PeerBroker", EndingBroker)
    async with peer_brokers("broker-a") as peers:
        (broker,) = peers.brokers
        assert isinstance(broker, EndingBroker)
        broker.end_codes = [code]
        server = f"127.0.0.1:{peers.names.port}"
        async with TransactionProducer(server, group="shop", check=never) as producer:
            async with producer.transaction(Message(TOPIC, b"x")) as transaction:
                pass
            assert (transaction.state, transaction.is_settled) == (COMMIT, False)


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_a_half_message_that_is_not_safe_is_taken_back(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("support.client.producer_harness.PeerBroker", EndingBroker)
    async with peer_brokers("broker-a") as peers:
        (broker,) = peers.brokers
        assert isinstance(broker, EndingBroker)
        broker.codes = [code, code]
        server = f"127.0.0.1:{peers.names.port}"

        async def never_done(_: object) -> TransactionState:
            raise AssertionError

        async with TransactionProducer(server, group="shop", check=never) as producer:
            with pytest.raises(SendError, match="rolled back"):
                async with producer.transaction(Message(TOPIC, b"x")):
                    raise AssertionError
            receipt = await producer.send_in_transaction(Message(TOPIC, b"y"), never_done)
            assert receipt.state is ROLLBACK
        assert [end["commitOrRollback"] for end in broker.ends] == ["12", "12"]


# What cannot be


def test_what_a_producer_of_transactions_needs() -> None:
    with pytest.raises(TypeError, match="check"):
        TransactionProducer(group="shop")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="group"):
        TransactionProducer(check=never)  # type: ignore[call-arg]
    with pytest.raises(InvalidMessageError, match="function"):
        TransactionProducer(group="shop", check="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessageError, match="check_at_a_time"):
        TransactionProducer(group="shop", check=never, check_at_a_time=0)


async def test_what_a_message_of_a_transaction_cannot_be(cluster: LocalCluster) -> None:
    async with producer_of(cluster) as producer:
        with pytest.raises(InvalidMessageError, match="delayed"):
            producer.transaction(Message(TOPIC, b"x", delay_level=3))
        with pytest.raises(InvalidMessageError, match="check_after"):
            producer.transaction(Message(TOPIC, b"x"), check_after=0.5)
        with pytest.raises(InvalidMessageError):
            await producer.transaction(Message("bad topic!", b"x")).begin()


# Plain code


def test_plain_code_has_the_same() -> None:
    asked: list[str] = []

    def check(message: omq.ReceivedMessage) -> TransactionState:
        asked.append(message.message_id)
        return COMMIT

    with (
        nothing_left(),
        LocalCluster() as cluster,
        omq.TransactionProducer(cluster.name_server, group="shop", check=check) as producer,
    ):
        with producer.transaction(Message(TOPIC, b"paid")) as transaction:
            assert transaction.receipt is not None
            assert transaction.message.body == b"paid"
            assert cluster.messages(TOPIC) == []
        assert (transaction.state, transaction.is_settled) == (COMMIT, True)
        with pytest.raises(ZeroDivisionError), producer.transaction(Message(TOPIC, b"x")):
            raise ZeroDivisionError
        with pytest.raises(KeyboardInterrupt), producer.transaction(Message(TOPIC, b"interrupted")) as open_one:
            raise KeyboardInterrupt
        assert open_one.state is UNKNOWN
        with producer.transaction(Message(TOPIC, b"x")) as transaction:
            transaction.commit()
            transaction.rollback()
        with producer.transaction(Message(TOPIC, b"late")) as late:
            late.unknown()
        cluster.advance(LONG)
        deadline = threading.Event()
        while len(cluster.messages(TOPIC)) < 3:
            deadline.wait(0.005)
        assert sorted(message.body for message in cluster.messages(TOPIC)) == [b"interrupted", b"late", b"paid"]
        assert asked == [open_one.transaction_id, late.transaction_id]
        assert producer.send(Message(TOPIC, b"plain")).status is SendStatus.SEND_OK


def test_plain_code_does_its_local_transaction_where_it_is() -> None:
    threads: list[threading.Thread] = []

    def pay(_: omq.Transaction) -> TransactionState:
        threads.append(threading.current_thread())
        return COMMIT

    def fail(_: omq.Transaction) -> TransactionState:
        raise ZeroDivisionError

    async def wrong(_: omq.Transaction) -> TransactionState:
        return COMMIT

    with (
        LocalCluster() as cluster,
        omq.TransactionProducer(cluster.name_server, group="shop", check=never, local_transaction=pay) as producer,
    ):
        receipt = producer.send_in_transaction(Message(TOPIC, b"x"))
        assert (receipt.state, receipt.is_settled) == (COMMIT, True)
        assert threads == [threading.current_thread()]
        with pytest.raises(ZeroDivisionError):
            producer.send_in_transaction(Message(TOPIC, b"y"), fail)
        with pytest.raises(InvalidMessageError, match="aio"):
            producer.send_in_transaction(Message(TOPIC, b"z"), wrong)
        assert [message.body for message in cluster.messages(TOPIC)] == [b"x"]
