"""Priorities between Apache's Java clients and broker and ours: the same queues, and levels in their order."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

import pytest

from conformance.java.java_harness import eventually as eventually_java
from conformance.sdk.sdk_harness import APACHE, OURS, eventually, own_name, servers_of
from orbitmq import Message, Producer
from peers.frames import ask
from peers.java_client import VERSIONS, JavaClient, unavailable
from peers.java_consumers import JavaPushConsumer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conformance.servers.processes import Serving

LEVELS = 4
EACH = 100

_UPDATE_AND_CREATE_TOPIC = 17
_GET_ROUTE = 105


def create_levels(server: Serving, topic: str) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    fields |= {"readQueueNums": str(LEVELS), "writeQueueNums": str(LEVELS), "perm": "6", "order": "false"}
    fields |= {"attributes": "+message.type=PRIORITY"}
    assert ask(server.broker_address, _UPDATE_AND_CREATE_TOPIC, fields).code == 0
    eventually(lambda: ask(server.nameserver, _GET_ROUTE, {"topic": topic}).code == 0)


@pytest.mark.parametrize("whose", [OURS, APACHE])
def test_a_priority_chooses_the_same_queue_everywhere(
    whose: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with servers_of(whose, tmp_path) as server:
        topic = own_name(request)
        create_levels(server, topic)
        with Producer(server.nameserver, group=f"{topic}_producers") as producer:
            queues = [
                producer.send(Message(topic, b"x", priority=priority)).queue.queue_id
                for priority in (0, 1, 2, 3, 4, 65535)
            ]
    assert queues == [0, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unmodified_java_consumer_gets_the_highest_level_first(
    version: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if reason := unavailable(version):
        pytest.skip(reason)
    topic = own_name(request)
    with servers_of(OURS, tmp_path / "server") as server:
        create_levels(server, topic)
        with Producer(server.nameserver, group=f"{topic}_producers") as producer:
            for number in range(LEVELS * EACH):
                producer.send(Message(topic, f"{number % LEVELS}", priority=number % LEVELS))
        with (
            JavaClient(version, home=tmp_path / "client", nameserver=server.nameserver) as java,
            JavaPushConsumer(java, f"{topic}_consumers", topic) as consumer,
        ):
            texts = eventually_java(consumer.texts, is_enough=lambda found: len(found) >= LEVELS * EACH)
    assert sorted(text or "" for text in texts) == [f"{level}" for level in range(LEVELS) for _ in range(EACH)]
    # Threads of the consumer may be held up with what they have, so a few of a level may be late by any number: the
    # one in its middle is not. Side by side, all levels would be about the same.
    places = [
        statistics.median(at for at, text in enumerate(texts) if text == f"{level}") for level in range(LEVELS)
    ]
    for lower, higher in itertools.pairwise(places):
        assert lower - higher > EACH / 2, _runs(texts)


def _runs(texts: Sequence[str | None]) -> str:
    """The runs of equal priority, as lengths and levels."""
    return " ".join(f"{text}*{len(list(run))}" for text, run in itertools.groupby(texts))
