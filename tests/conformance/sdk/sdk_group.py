"""A consumer group under load: members of Java and of Python that come and go, and write down what they get."""

from __future__ import annotations

import collections
import contextlib
import logging
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from conformance.sdk import sdk_member
from conformance.sdk.sdk_harness import Seen, consumer_of, eventually
from orbitmq import Message, Producer
from peers.java_consumers import JavaPushConsumer
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from conformance.servers.processes import Serving
    from orbitmq import Consumer
    from peers.java_client import JavaClient

log = logging.getLogger(__name__)

STABLE_MESSAGES = 100
"""So many messages are sent while a group stays as it is."""
PAUSE_SECONDS = 0.004
"""Between two messages."""
STOP_SECONDS = 30


class SharedGroup:
    """A group with the name of its topic. The messages are numbers, from 0 on; they are sent while this is open."""

    def __init__(self, server: Serving, topic: str, *, queues: int, home: Path) -> None:
        self.sent = 0
        """All numbers below this one were sent."""
        self._server = server
        self._topic = topic
        self._every = set(range(queues))
        self._home = home
        self._seen = Seen()
        self._journals: list[Path] = []
        self._shares: dict[str, Callable[[], set[int]]] = {}
        self._processes: list[PeerProcess] = []
        self._is_over = threading.Event()
        self._sending = threading.Thread(target=self._send)

    def __enter__(self) -> Self:
        self._sending.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish_sending()
        for process in self._processes:
            process.kill()

    def _send(self) -> None:
        with Producer(self._server.nameserver, send_msg_timeout=10) as producer:
            while not self._is_over.wait(PAUSE_SECONDS):
                producer.send(Message(self._topic, b"%d" % self.sent))
                self.sent += 1

    def finish_sending(self) -> None:
        self._is_over.set()
        self._sending.join()

    # Members

    def python_here(self, name: str) -> Consumer:
        """A member in this process, not yet started."""
        consumer = consumer_of(self._server, self._topic, self._seen)
        self._shares[name] = lambda: {queue.queue_id for queue in consumer.queues if queue.topic == self._topic}
        return consumer

    def python(self, name: str) -> PeerProcess:
        """A member in a process of its own; to be stopped, it leaves the group."""
        journal = self._journal(name)
        home = self._home / name
        home.mkdir()
        arguments = [self._server.nameserver, self._topic, self._topic, str(journal)]
        command = [sys.executable, str(Path(sdk_member.__file__)), *arguments]
        process = PeerProcess(f"Python member {name}", command, home=home, environment={})
        self._processes.append(process)
        self._shares[name] = lambda: _told_queues(journal)
        return process

    def java(self, name: str, jvm: JavaClient) -> JavaPushConsumer:
        consumer = JavaPushConsumer(jvm, self._topic, self._topic, journal=self._journal(name))
        self._shares[name] = consumer.queues
        return consumer

    def gone(self, name: str) -> None:
        """A member left, or was killed."""
        del self._shares[name]

    def _journal(self, name: str) -> Path:
        journal = self._home / f"{name}.journal"
        journal.touch()
        self._journals.append(journal)
        return journal

    # What they get

    def deliveries(self) -> collections.Counter[int]:
        """How often each number was consumed."""
        found = collections.Counter(int(body) for body in self._seen.bodies)
        for journal in self._journals:
            # The last line may be on its way.
            lines = journal.read_bytes().split(b"\n")[:-1]
            found.update(int(line) for line in lines if not line.startswith(sdk_member.QUEUES))
        return found

    def settle(self) -> None:
        """Wait until every queue has one member and every member has queues."""

        def shares() -> list[set[int]]:
            return [share() for share in self._shares.values()]

        def are_fair(shares: list[set[int]]) -> bool:
            each = sum(map(len, shares))
            return all(shares) and each == len(self._every) and set().union(*shares) == self._every

        eventually(shares, are_fair)

    def consumes_once_while_it_stays_as_it_is(self) -> None:
        """As soon as the queues are shared out, nothing that is sent is consumed twice or not at all."""
        self.settle()
        begin = self.sent + 1
        eventually(lambda: self.sent >= begin + STABLE_MESSAGES)
        window = range(begin, self.sent)
        found = eventually(self.deliveries, lambda found: all(found[number] for number in window))
        self.settle()
        assert {number: found[number] for number in window if found[number] != 1} == {}
        repeats = found.total() - len(found)
        log.info("%d messages, %d repeats, members: %s", self.sent, repeats, ", ".join(self._shares))

    def consumed_all(self) -> collections.Counter[int]:
        """Wait until every message that was sent was consumed, and return how often each was."""
        return eventually(self.deliveries, lambda found: len(found) == self.sent)


def _told_queues(journal: Path) -> set[int]:
    with contextlib.suppress(IndexError):
        lines = journal.read_bytes().split(b"\n")[:-1]
        last = [line for line in lines if line.startswith(sdk_member.QUEUES)][-1]
        return {int(number) for number in last.split()[1:]}
    return set()
