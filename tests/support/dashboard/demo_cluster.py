"""A cluster with something of all that the console displays, with markup wherever a text can be."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any

from orbitmq import Consumer, ConsumeResult, Message
from orbitmq.admin import SyncAdminClient
from orbitmq.admin.topic.model import TopicSettings
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq import ReceivedMessage

PATIENT = {
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
    "traceTopicEnable": "true",
}
PATIENCE = 60.0
MARKUP = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
MARKUP_TOPIC = "<script>window.hacked=1</script>"
"""Brokers refuse the name; one with a damaged table of topics may send it all the same."""
MESSAGES = 40


@dataclasses.dataclass
class DemoCluster:
    """The running cluster."""

    name_server: str
    brokers: list[str]
    message_id: str
    """A traced message of ``orders`` that the group billing consumed."""


@contextlib.contextmanager
def demo_cluster() -> Iterator[DemoCluster]:
    """Two brokers; topics, groups with members and with lag, dead letters, timed and traced messages."""
    with LocalCluster(brokers=2, settings=PATIENT) as cluster, SyncAdminClient(cluster.name_server) as admin:
        for topic in ("orders", "payments"):
            admin.topics.create(topic, TopicSettings(read_queues=2, write_queues=2))
        for group in ("billing", "refunds", "idle"):
            admin.groups.create(group)
        producer = cluster.producer(group="shop", enable_trace=True)
        ids = [
            producer.send(
                Message("orders", json={"order": at, "amount": at * 7}, keys=f"order-{at}", tags="AB"[at % 2])
            ).message_id
            for at in range(MESSAGES)
        ]
        producer.send(Message("orders", MARKUP, tags=MARKUP, keys="markup", properties={"note": MARKUP}))
        producer.send(Message("orders", bytes(range(256)), keys="binary"))
        producer.send(Message("payments", "tomorrow", delay=86_400))
        producer.send(Message("payments", "refused", keys="refused"))
        seen: list[str] = []
        with _consumers(cluster.name_server, seen):
            _until(lambda: ids[0] in seen)
            _until(lambda: any(one.messages for one in admin.dead_letters.all()))
            _put_topic(cluster, MARKUP_TOPIC)
            yield DemoCluster(
                cluster.name_server,
                [one.broker.address for one in admin.brokers.all()],
                ids[0],
            )


def _put_topic(cluster: Any, name: str) -> None:
    """Put a topic with any name into a broker's table."""
    cluster._look(lambda: cluster._cluster.broker("broker-a").topics.update(TopicConfig(name)))


@contextlib.contextmanager
def _consumers(name_server: str, seen: list[str]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(_consumer(name_server, "billing", "orders", lambda one: _note(seen, one)))
        # The name of an instance becomes a part of its client id.
        refuse = _consumer(name_server, "refunds", "payments", lambda _: ConsumeResult.LATER, instance=MARKUP)
        stack.enter_context(refuse)
        yield


def _note(seen: list[str], message: ReceivedMessage) -> None:
    seen.append(message.message_id)


def _consumer(
    name_server: str,
    group: str,
    topic: str,
    handle: Callable[[ReceivedMessage], object],
    *,
    instance: str = "DEFAULT",
) -> Consumer:
    consumer = Consumer(
        name_server,
        group=group,
        instance_name=instance,
        enable_trace=True,
        max_reconsume_times=0,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )
    consumer.on(topic)(handle)
    return consumer


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "the demo cluster is not ready"
        time.sleep(0.05)
