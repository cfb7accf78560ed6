"""Blocking sends over connections of their own: what is retried, what ends them, and what takes the loop."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

from orbitmq import Message, Producer
from orbitmq.client.errors import BrokerError, SendError, SendTimeoutError
from orbitmq.client.producer.hooks import SendHook
from orbitmq.client.sync import connection_pool
from orbitmq.client.sync.bridge import LoopThread
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from support.client.producer_harness import HANG_UP, SILENCE, TOPIC, PeerBroker, Peers, peer_brokers
from support.remoting_harness import PATIENCE, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq import Receipt
    from orbitmq.client.producer.hooks import SendContext

NAME = "broker-a"


class Place:
    """A scripted broker on a loop of its own, and another one of its name that is not known yet."""

    def __init__(self) -> None:
        self.loop = LoopThread("peers")
        self._stack = contextlib.AsyncExitStack()
        self.peers: Peers
        self.broker: PeerBroker
        self.other = PeerBroker(NAME)

    def __enter__(self) -> Self:
        async def start() -> None:
            self.peers = await self._stack.enter_async_context(peer_brokers(NAME))
            self.broker = self.peers.brokers[0]
            self.other.server = await self._stack.enter_async_context(serving(self.other.handlers))

        self.loop.do(start())
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.do(self._stack.aclose())
        self.loop.stop()

    def call(self, work: Callable[[], object]) -> None:
        """Do something on the loop of the brokers."""

        async def done() -> None:
            work()

        self.loop.do(done())

    @property
    def connections(self) -> int:
        return len(self.broker.server.connections)

    def abort_newest(self) -> None:
        """Let the broker end the connection over which it got the last send."""
        self.call(self.broker.senders[-1].abort)


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as running:
        yield running


def eventually(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.002)


@contextlib.contextmanager
def sending(place: Place, **options: Any) -> Iterator[Producer]:
    """A producer that has sent twice: over the connection of its loop, then over one of its own."""
    with Producer(place.peers.name_server, group="g", **options) as producer:
        producer.send(Message(TOPIC, b"first"))
        producer.send(Message(TOPIC, b"second"))
        yield producer


def in_thread(producer: Producer, body: bytes, **options: Any) -> concurrent.futures.Future[Receipt]:
    """Send in a thread of its own."""
    sent: concurrent.futures.Future[Receipt] = concurrent.futures.Future()

    def send() -> None:
        try:
            sent.set_result(producer.send(Message(TOPIC, body), **options))
        except BaseException as error:
            sent.set_exception(error)

    threading.Thread(target=send).start()
    return sent


def test_a_thread_sends_over_a_connection_of_its_own_and_keeps_it(place: Place) -> None:
    with sending(place) as producer:
        for number in range(20):
            receipt = producer.send(Message(TOPIC, b"%d" % number))
        assert place.connections == 2
        assert len({*place.broker.senders}) == 2
        assert len({*place.broker.senders[1:]}) == 1
    assert receipt.queue_offset == 21
    assert place.broker.bodies[-1] == b"19"
    eventually(lambda: place.connections == 0)


def test_threads_that_send_at_a_time_have_a_connection_each_up_to_the_limit(place: Place) -> None:
    with sending(place, sync_send_connections=2) as producer:
        place.broker.holds = True
        receipts = [in_thread(producer, b"x") for _ in range(5)]
        eventually(lambda: len(place.broker.sends) == 7)
        assert place.connections == 3
        place.call(place.broker.let_go)
        assert len({receipt.result(PATIENCE).queue_offset for receipt in receipts}) == 5


def test_without_connections_of_their_own_sends_share_that_of_the_loop(place: Place) -> None:
    with sending(place, sync_send_connections=0) as producer:
        producer.send(Message(TOPIC, b"x"))
        assert place.connections == 1


def test_a_lost_connection_and_a_busy_broker_are_retried(place: Place) -> None:
    with sending(place) as producer:
        place.broker.codes = [HANG_UP, ResponseCode.SYSTEM_BUSY]
        producer.send(Message(TOPIC, b"x"))
    assert place.broker.bodies == [b"first", b"second", b"x", b"x", b"x"]


def test_a_refusal_and_the_loss_of_the_only_attempt_are_raised(place: Place) -> None:
    with sending(place) as producer:
        place.broker.codes = [ResponseCode.MESSAGE_ILLEGAL, HANG_UP]
        with pytest.raises(BrokerError) as refused:
            producer.send(Message(TOPIC, b"x"))
        with pytest.raises(SendError, match="after 1 attempts"):
            producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, NAME, 1))
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert len(place.broker.sends) == 4


def test_another_broker_is_tried_if_that_is_wanted_when_a_message_is_not_safe_yet(place: Place) -> None:
    with sending(place, retry_another_broker_when_not_store_ok=True) as producer:
        place.broker.codes = [ResponseCode.FLUSH_DISK_TIMEOUT]
        assert producer.send(Message(TOPIC, b"x")).queue_offset == 3


def test_the_late_answer_to_a_send_that_timed_out_does_not_go_to_another_send(place: Place) -> None:
    with sending(place) as producer:
        place.broker.holds = True
        with pytest.raises(SendTimeoutError):
            producer.send(Message(TOPIC, b"slow"), timeout=0.2)
        place.call(place.broker.let_go)
        assert producer.send(Message(TOPIC, b"x")).queue_offset == 3
        place.broker.codes = [SILENCE]
        with pytest.raises(SendTimeoutError):
            producer.send(Message(TOPIC, b"x"), timeout=0.0)


def test_an_attempt_has_its_own_timeout(place: Place) -> None:
    with sending(place, send_msg_max_timeout_per_request=0.2) as producer:
        place.broker.codes = [SILENCE]
        producer.send(Message(TOPIC, b"x"), timeout=PATIENCE)
        assert place.broker.bodies[2:] == [b"x", b"x"]


def test_what_waits_for_a_master_that_hangs_is_sent_to_the_next_one(place: Place) -> None:
    with sending(place) as producer:
        place.broker.always, place.broker.hangs = SILENCE, True
        with pytest.raises(SendTimeoutError):
            producer.send(Message(TOPIC, b"x"), timeout=0.2)
        waiting = in_thread(producer, b"waits", timeout=100)
        eventually(lambda: place.broker.bodies[-1] == b"waits")
        place.loop.do(place.peers.serve(NAME, 2, address=place.other.address))
        waiting.result(PATIENCE)
        assert place.other.bodies == [b"waits"]


def test_a_connection_that_was_closed_while_it_was_not_used_costs_no_attempt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "CHECK_AFTER", 0)
    with sending(place, retry_times_when_send_failed=0) as producer:
        place.abort_newest()
        eventually(lambda: place.connections == 1)
        producer.send(Message(TOPIC, b"x"))
        assert place.broker.bodies[-1] == b"x"


def test_unused_connections_are_closed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "IDLE_SECONDS", 0)
    with sending(place) as producer:
        eventually(lambda: place.connections == 1)
        producer.send(Message(TOPIC, b"x"))


def test_a_send_does_not_overtake_what_was_sent_without_waiting(place: Place) -> None:
    with sending(place) as producer:
        place.broker.holds = True
        first = producer.send_async(Message(TOPIC, b"async"))
        second = in_thread(producer, b"waits")
        eventually(lambda: len(place.broker.sends) == 4)
        place.call(place.broker.let_go)
        first.result(PATIENCE)
        second.result(PATIENCE)
        producer.send_oneway(Message(TOPIC, b"oneway"))
        producer.send(Message(TOPIC, b"after"))
        assert place.broker.bodies[2:] == [b"async", b"waits", b"oneway", b"after"]
        shared = place.broker.senders[0]
        assert [sender is shared for sender in place.broker.senders] == [True, False, True, True, True, True]
        producer.send(Message(TOPIC, b"x"))
        assert place.broker.senders[-1] is not shared


def test_hooks_see_what_is_sent_as_before(place: Place) -> None:
    class Stamp(SendHook):
        def before_send(self, context: SendContext) -> None:
            context.messages[0].properties["stamp"] = "1"

        def after_send(self, context: SendContext) -> None:
            assert context.error is None

    with sending(place, hooks=[Stamp()]):
        assert place.connections == 1
        assert "stamp" in place.broker.sends[-1].ext_fields["i"]


def test_sends_of_a_user_are_signed(place: Place) -> None:
    with sending(place, access_key="shop", secret_key="secret-of-shop"):
        assert place.connections == 2
        assert place.broker.sends[-1].ext_fields["AccessKey"] == "shop"
        assert place.broker.sends[-1].ext_fields["Signature"]


def test_closing_waits_for_sends_of_other_threads(place: Place) -> None:
    with sending(place) as producer:
        place.broker.holds = True
        receipt = in_thread(producer, b"x")
        eventually(lambda: len(place.broker.sends) == 3)
        closing = threading.Thread(target=producer.close)
        closing.start()
        assert not receipt.done()
        place.call(place.broker.let_go)
        closing.join(PATIENCE)
        assert receipt.result(PATIENCE).queue_offset == 2


def test_a_signal_handler_may_close_the_producer_whose_send_it_interrupts(place: Place) -> None:
    with sending(place) as producer:
        place.broker.holds = True
        closed = threading.Event()

        def close(*_: object) -> None:
            producer.close()
            closed.set()

        def interrupt() -> None:
            eventually(lambda: len(place.broker.sends) == 3)
            os.kill(os.getpid(), signal.SIGUSR1)
            closed.wait(PATIENCE)
            place.call(place.broker.let_go)

        before = signal.signal(signal.SIGUSR1, close)
        helper = threading.Thread(target=interrupt)
        helper.start()
        try:
            assert producer.send(Message(TOPIC, b"x"), timeout=PATIENCE).queue_offset == 2
        finally:
            helper.join()
            signal.signal(signal.SIGUSR1, before)
    eventually(lambda: place.connections == 0)


def test_an_interrupted_send_leaves_its_connection_to_no_other(place: Place) -> None:
    with sending(place) as producer:
        place.broker.holds = True

        def interrupt() -> None:
            eventually(lambda: len(place.broker.sends) == 3)
            os.kill(os.getpid(), signal.SIGUSR1)

        def give_up(*_: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGUSR1, give_up)
        helper = threading.Thread(target=interrupt)
        helper.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                producer.send(Message(TOPIC, b"x"), timeout=PATIENCE)
        finally:
            helper.join()
            signal.signal(signal.SIGUSR1, before)
        place.call(place.broker.let_go)
        assert producer.send(Message(TOPIC, b"next")).queue_offset == 3
