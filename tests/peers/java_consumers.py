"""Consumers of Apache's Java clients: push, pull and lite pull."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from peers.java_client import JavaClient, Message, Queue, Started, message, new_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FIRST, LAST = "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_LAST_OFFSET"
"""Where a new group begins to consume."""

CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"


@dataclasses.dataclass(frozen=True, slots=True)
class Pulled:
    status: str
    next: int
    min: int
    max: int
    messages: list[Message]

    @property
    def texts(self) -> list[str | None]:
        return [message.text for message in self.messages]


@dataclasses.dataclass(frozen=True, slots=True)
class Offsets:
    """The first offset of a queue, the one after its last, and when its first message was stored."""

    min: int
    max: int
    earliest: int


class JavaPushConsumer(Started):
    """A push consumer, whose listener fails the first ``failures`` deliveries of each message (or of ``failing``).

    It fails with ``later``, ``exception`` or ``null``. ``setters`` are options of the client by their Java names,
    which newer versions have. ``journal`` is a file to which it adds each body as a line,
    before it says whether it was consumed.
    """

    KIND = "push"

    def __init__(
        self,
        jvm: JavaClient,
        group: str,
        topic: str,
        *,
        nameserver: str | None = None,
        tags: str = "*",
        sql: str | None = None,
        orderly: bool = False,
        model: str = CLUSTERING,
        begin: str = FIRST,
        max_reconsume_times: int = -1,
        batch_size: int = 1,
        failures: int = 0,
        failing: str | None = None,
        fail_with: str = "later",
        delay_level: int = 0,
        journal: Path | None = None,
        trace: bool = False,
        trace_topic: str | None = None,
        properties: Mapping[str, str] | None = None,
        setters: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            jvm,
            group,
            nameserver=nameserver,
            topic=topic,
            setters=setters,
            journal=str(journal) if journal else None,
            tags=tags,
            sql=sql,
            orderly=orderly,
            trace=trace,
            traceTopic=trace_topic,
            model=model,
            maxReconsumeTimes=max_reconsume_times,
            batchSize=batch_size,
            failures=failures,
            failing=failing,
            failWith=fail_with,
            delayLevel=delay_level,
            properties=properties,
            **{"from": begin},
        )
        self._topic = topic

    def consumed(self, since: int = 0) -> list[Message]:
        """Every delivery so far, in the order of the listener's calls."""
        return [message(row) for row in self._ask("consumed", since=since)]

    def texts(self) -> list[str | None]:
        return [message.text for message in self.consumed()]

    def queues(self) -> set[int]:
        """The ids of the topic's queues that it was given."""
        return {row["id"] for row in self._ask("queues", topic=self._topic)}


class JavaPullConsumer(Started):
    """A pull consumer, which also answers questions about queues and messages."""

    KIND = "pull"

    def pull(
        self, queue: Queue, offset: int, *, count: int = 32, tags: str = "*", sql: str | None = None
    ) -> Pulled:
        return _pulled(
            self._ask("pull", queue=dataclasses.asdict(queue), offset=offset, count=count, tags=tags, sql=sql)
        )

    def hold(self, queue: Queue, offset: int, *, count: int = 32, tags: str = "*") -> str:
        """Start a pull that the broker holds until there is something, and return what ``held`` asks for it by."""
        name = f"hold-{new_number()}"
        self._ask("hold", hold=name, queue=dataclasses.asdict(queue), offset=offset, count=count, tags=tags)
        return name

    def held(self, name: str) -> Pulled | None:
        row = self._ask("held", hold=name)
        return _pulled(row) if row else None

    def queues(self, topic: str) -> list[Queue]:
        return [Queue(**row) for row in self._ask("queues", topic=topic)]

    def offsets(self, queue: Queue) -> Offsets:
        return Offsets(**self._ask("offsets", queue=dataclasses.asdict(queue)))

    def search(self, queue: Queue, timestamp: int) -> int:
        """The offset that a store timestamp leads to."""
        return int(self._ask("search", queue=dataclasses.asdict(queue), timestamp=timestamp))

    def committed(self, queue: Queue) -> int:
        """What the broker knows to be consumed by the group."""
        return int(self._ask("committed", queue=dataclasses.asdict(queue)))

    def commit(self, queue: Queue, offset: int) -> None:
        """Tell the broker what was consumed."""
        self._ask("commit", queue=dataclasses.asdict(queue), offset=offset)

    def send_back(self, queue: Queue, offset: int, *, delay_level: int) -> None:
        """Send the message at this offset back, to be consumed again after the delay (-1: never)."""
        self._ask("sendBack", queue=dataclasses.asdict(queue), offset=offset, delayLevel=delay_level)

    def view(self, topic: str, message_id: str) -> Message:
        return message(self._ask("view", topic=topic, id=message_id))

    def query(self, topic: str, key: str, *, limit: int = 32, begin: int = 0, end: int = 1 << 62) -> list[Message]:
        return [message(row) for row in self._ask("query", topic=topic, key=key, limit=limit, begin=begin, end=end)]


class JavaLitePullConsumer(Started):
    """A lite pull consumer: of the topic it subscribes to, or without one of the queues it is assigned."""

    KIND = "lite"

    def __init__(
        self, jvm: JavaClient, group: str, topic: str | None = None, *, tags: str = "*", sql: str | None = None
    ) -> None:
        super().__init__(jvm, group, topic=topic, tags=tags, sql=sql)

    def assign(self, queues: Sequence[Queue]) -> None:
        self._ask("assign", queues=[dataclasses.asdict(queue) for queue in queues])

    def assignment(self) -> list[Queue]:
        return [Queue(**row) for row in self._ask("assignment")]

    def seek(self, queue: Queue, to: int | str) -> None:
        """Go on at an offset, at the ``begin`` or at the ``end``."""
        self._ask("seek", queue=dataclasses.asdict(queue), to=str(to))

    def poll(self, timeout_ms: int = 500) -> list[Message]:
        return [message(row) for row in self._ask("poll", timeout=timeout_ms)]

    def commit(self, queue: Queue, offset: int) -> None:
        """Tell the broker what was consumed."""
        self._ask("commit", queue=dataclasses.asdict(queue), offset=offset)

    def committed(self, queue: Queue) -> int:
        return int(self._ask("committed", queue=dataclasses.asdict(queue)))

    def queues(self, topic: str) -> list[Queue]:
        return [Queue(**row) for row in self._ask("queues", topic=topic)]

    def search(self, queue: Queue, timestamp: int) -> int:
        return int(self._ask("search", queue=dataclasses.asdict(queue), timestamp=timestamp))


def _pulled(row: Mapping[str, Any]) -> Pulled:
    messages = [message(found) for found in row["messages"]]
    return Pulled(row["status"], row["next"], row["min"], row["max"], messages)
