"""What tests of the Python client share: topics, patience, handlers that remember, and reading all there is."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import pytest

from conformance.servers.processes import serving
from orbitmq import Consumer, LitePullConsumer
from peers.apache import available
from peers.frames import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from conformance.servers.processes import Serving
    from orbitmq import Receipt, ReceivedMessage
    from orbitmq.client.lite_pull.config import LitePullOptions
    from orbitmq.client.push.config import ConsumerOptions

_T = TypeVar("_T")

PATIENCE = 60
"""Seconds until what must happen is given up; nothing waits that long where all is well."""

QUEUES = 4
"""Of a test's topic."""

READ, WRITE = 4, 2

OURS, APACHE = "orbitmq", "apache"
"""Whose servers there are."""

SETTINGS = {
    # A retry begins at the third level.
    "messageDelayLevel": "1s 1s 1s 1s 1s",
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": str(64 << 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}

_UPDATE_AND_CREATE_TOPIC = 17
_GET_ROUTE = 105
_POLL_SECONDS = 0.02


@contextlib.contextmanager
def servers_of(whose: str, home: Path) -> Iterator[Serving]:
    """A name server and a broker of OrbitMQ or of Apache. Skips the test where the latter cannot be run."""
    if whose == APACHE and (reason := available()):
        pytest.skip(reason)
    with serving(home, SETTINGS, apache=whose == APACHE) as running:
        yield running


def own_name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test has."""
    return re.sub(r"[^0-9A-Za-z]+", "_", request.node.name.removeprefix("test_"))[-90:].strip("_")


def create_topic(server: Serving, topic: str, *, queues: int = QUEUES, perm: int = READ | WRITE) -> str:
    """Create or change a topic, and wait until the name server knows."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues), "perm": str(perm), "order": "false"}
    assert ask(server.broker_address, _UPDATE_AND_CREATE_TOPIC, fields).code == 0
    wanted = f'"perm":{perm}'.encode()

    def is_known() -> bool:
        answer = ask(server.nameserver, _GET_ROUTE, {"topic": topic})
        return answer.code == 0 and wanted in answer.body

    eventually(is_known)
    return topic


def eventually(probe: Callable[[], _T], is_enough: Callable[[_T], bool] = bool) -> _T:
    """What the probe says, as soon as it is enough."""
    deadline = time.monotonic() + PATIENCE
    while not is_enough(seen := probe()):
        assert time.monotonic() < deadline, f"still {seen!r} after {PATIENCE} s"
        time.sleep(_POLL_SECONDS)
    return seen


async def soon(probe: Callable[[], _T], is_enough: Callable[[_T], bool] = bool) -> _T:
    """The same for coroutines."""
    deadline = time.monotonic() + PATIENCE
    while not is_enough(seen := probe()):
        assert time.monotonic() < deadline, f"still {seen!r} after {PATIENCE} s"
        await asyncio.sleep(_POLL_SECONDS)
    return seen


class DeliberateError(Exception):
    """What a handler raises that was told to fail."""


class Seen:
    """A handler that remembers what it was given, and fails the first times that it is given some bodies."""

    def __init__(self, failures: Mapping[bytes, int] | None = None) -> None:
        self._messages: list[ReceivedMessage] = []
        self._failures = dict(failures or {})
        self._guard = threading.Lock()

    def __call__(self, message: ReceivedMessage) -> None:
        with self._guard:
            self._messages.append(message)
            left = self._failures.get(message.body, 0)
            if left:
                self._failures[message.body] = left - 1
        if left:
            raise DeliberateError(f"{message} fails {left} times more")

    async def on_the_loop(self, message: ReceivedMessage) -> None:
        """The same as a coroutine."""
        await asyncio.sleep(0)
        self(message)

    @property
    def messages(self) -> list[ReceivedMessage]:
        """Every delivery so far, in their order."""
        with self._guard:
            return list(self._messages)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def wait_for(self, count: int) -> list[ReceivedMessage]:
        """Every delivery, as soon as there are so many."""
        return eventually(lambda: self.messages, lambda messages: len(messages) >= count)


def push_options(**more: Unpack[ConsumerOptions]) -> ConsumerOptions:
    """For a push consumer that begins with the first message, and soon notices a change in its group."""
    options: ConsumerOptions = {
        "consume_from_where": "CONSUME_FROM_FIRST_OFFSET",
        "rebalance_interval": 2.0,
        "rebalance_min_interval": 0.2,
    }
    options.update(more)
    return options


def pull_options(**more: Unpack[LitePullOptions]) -> LitePullOptions:
    """The same for a pull consumer."""
    options: LitePullOptions = {
        "consume_from_where": "CONSUME_FROM_FIRST_OFFSET",
        "rebalance_interval": 2.0,
        "rebalance_min_interval": 0.2,
    }
    options.update(more)
    return options


def consumer_of(
    server: Serving, topic: str, handler: Callable[[Any], Any], **more: Unpack[ConsumerOptions]
) -> Consumer:
    """A push consumer of one topic, whose group has the topic's name."""
    consumer = Consumer(server.nameserver, group=topic, **push_options(**more))
    consumer.subscribe(topic, handler)
    return consumer


def reader_of(server: Serving, group: str, **more: Unpack[LitePullOptions]) -> LitePullConsumer:
    """A pull consumer."""
    return LitePullConsumer(server.nameserver, group=group, **pull_options(**more))


def place(message: ReceivedMessage) -> tuple[str, int, int]:
    """The id of a message and where it lies."""
    return message.message_id, message.queue_id, message.queue_offset


def place_told(receipt: Receipt) -> tuple[str, int, int]:
    """The same, as the sender was told."""
    return receipt.message_id, receipt.queue.queue_id, receipt.queue_offset


def has_route(server: Serving, topic: str) -> bool:
    return ask(server.nameserver, _GET_ROUTE, {"topic": topic}).code == 0


def read_all(server: Serving, topic: str, count: int) -> list[ReceivedMessage]:
    """The messages of a topic by queue and offset, as soon as there are so many; none is left over."""
    group = f"readers_of_{topic.replace('%', '_')}"
    found: list[ReceivedMessage] = []
    with reader_of(server, group, auto_commit=False) as reader:
        reader.assign(reader.fetch_message_queues(topic))
        deadline = time.monotonic() + PATIENCE
        while len(found) < count:
            found += reader.poll(1)
            assert time.monotonic() < deadline, f"only {len(found)} of {count} messages of {topic}"
        found += reader.poll(0.1)
    assert len(found) == count
    return sorted(found, key=lambda message: (message.queue_id, message.queue_offset))
