"""Traffic of every kind that a broker counts: the same for Apache's broker and ours, to compare the counts."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from orbitmq import Consumer, Message, Producer, SimpleConsumer, TransactionProducer, TransactionState
from orbitmq.protocol.bodies import ConsumeFromWhere
from support.metrics.endpoint_text import Series, values

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq import PoppedMessage, ReceivedMessage

NORMAL, POPPED, PAID, DELAYED = "MetricsNormal", "MetricsPopped", "MetricsPaid", "MetricsDelayed"
GROUP, POP_GROUP = "MetricsGroup", "MetricsPopGroup"
NORMAL_COUNT, POPPED_COUNT, DEAD = 40, 12, b"dead"
COMMITTED, ROLLED_BACK = 3, 2
SENT_ALONE = NORMAL_COUNT - 10 + 1 + POPPED_COUNT + 2 + COMMITTED + ROLLED_BACK
"""Messages that were not sent in a batch."""
QUEUES = 4
"""Of a topic that a producer creates: their offsets are confirmed one by one."""
PATIENCE = 60.0


class Traffic:
    """Sends, consumes, pops, retries and transacts; its clients stay connected until ``close``."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._seen: list[ReceivedMessage] = []
        self._guard = threading.Lock()
        self.producer = Producer(name_server, group="MetricsProducers", send_msg_timeout=15)
        self.transactions = TransactionProducer(
            name_server, group="MetricsTransactions", check=lambda _: TransactionState.UNKNOWN, send_msg_timeout=15
        )
        self.consumer = Consumer(
            name_server,
            group=GROUP,
            max_reconsume_times=0,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        self.simple = SimpleConsumer(name_server, group=POP_GROUP)
        self.popped: list[PoppedMessage] = []

    def run(self) -> None:
        """All of it, and wait until everything was delivered."""
        for client in (self.producer, self.transactions):
            client.start()
        self._send()
        self.consumer.subscribe(NORMAL, self._on_message)
        self.consumer.start()
        _until(lambda: len(self._seen) >= NORMAL_COUNT + 1, "the push consumer received everything")
        self.simple.subscribe(POPPED)
        self.simple.start()
        _until(self._pop, "the simple consumer received everything")
        self.simple.ack(*self.popped)

    def _send(self) -> None:
        send = self.producer.send
        for number in range(NORMAL_COUNT - 10):
            send(Message(NORMAL, b"x" * 100, keys=str(number)))
        self.producer.send_batch([Message(NORMAL, b"y" * 100) for _ in range(10)])
        send(Message(NORMAL, DEAD))
        for _ in range(POPPED_COUNT):
            send(Message(POPPED, b"z"))
        send(Message(DELAYED, b"later", delay_level=1))
        send(Message(DELAYED, b"at a time", delay=2.0))
        for number in range(COMMITTED + ROLLED_BACK):
            with self.transactions.transaction(Message(PAID, b"paid")) as transaction:
                if number >= COMMITTED:
                    transaction.rollback()

    def _on_message(self, message: ReceivedMessage) -> None:
        with self._guard:
            self._seen.append(message)
        if message.body == DEAD:
            raise ValueError("a handler that fails: the message goes to the dead letter queue")

    def _pop(self) -> bool:
        self.popped += self.simple.receive(POPPED_COUNT, invisible=120, timeout=2)
        return len(self.popped) >= POPPED_COUNT

    def close(self) -> None:
        for client in (self.consumer, self.simple, self.transactions, self.producer):
            client.close()


def _until(probe: Callable[[], bool], event: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not probe():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {event}"
        time.sleep(0.05)


def settled_page(fetch: Callable[[], Series]) -> Series:
    """The page as soon as everything was delivered, confirmed and timed."""
    page: Series = {}

    def is_settled() -> bool:
        page.clear()
        page.update(fetch())
        lag = values(page, "rocketmq_consumer_lag_messages", "topic")
        delivered = values(page, "rocketmq_timer_dequeue_total", "topic")
        incoming = values(page, "rocketmq_messages_in_total", "topic", "message_type")
        dead = values(page, "rocketmq_send_to_dlq_messages_total", "topic")
        acked = values(page, "rocketmq_timer_enqueue_total", "topic")
        requests = values(page, "rocketmq_rpc_latency_milliseconds_count", "request_code")
        return (
            requests.get(("update_consumer_offset",), 0) >= QUEUES
            and lag.get((NORMAL,)) == lag.get((POPPED,)) == 0
            and delivered.get((DELAYED,)) == 1
            and incoming.get((DELAYED, "delay")) == 1
            and dead.get((NORMAL,)) == 1
            and max(acked.values(), default=0) > POPPED_COUNT
        )

    _until(is_settled, "the metrics show everything")
    return page
