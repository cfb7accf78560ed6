"""A client in another language as a process of its own, which is told what to do a JSON line at a time."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import TYPE_CHECKING, Any, Self

from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

PATIENCE = 60
"""Seconds until what must arrive is given up; nothing waits that long where all is well."""


class RefusedError(PeerError):
    """The client itself gave its user an error. The message is the client's."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to send."""

    topic: str
    body: bytes
    tag: str = ""
    keys: Sequence[str] = ()
    sharding: str = ""
    delay: int = 0
    queue: int | None = None
    broker: str = ""
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """What a producer was told about a message it sent."""

    status: int | str
    message_id: str
    offset_id: str
    broker: str
    queue_id: int
    queue_offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Received:
    """A message as a consumer was given it."""

    topic: str
    body: bytes
    tag: str
    keys: str
    queue_id: int
    queue_offset: int
    message_id: str
    offset_id: str
    reconsume_times: int
    store_host: str
    properties: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """How many messages a client sent or was given, in how many seconds."""

    messages: int
    failures: int
    failure: str
    seconds: float


class Agent:
    """The process. It ends when this is left, without a chance to say goodbye to its servers."""

    def __init__(self, name: str, command: Sequence[str], *, home: Path, environment: Mapping[str, str]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._process = PeerProcess(
            name, command, home=home, environment={"HOME": str(home), **environment}, conversation=True
        )

    def producer(self, name: str, *, group: str = "", selector: str = "") -> str:
        """Start a producer and return its name."""
        self.ask("producer", name=name, group=group or f"{name}Group", selector=selector)
        return name

    def send(
        self, producer: str, messages: Iterable[Outgoing], *, mode: str = "", batch: bool = False
    ) -> list[Sent]:
        """Send messages and return what the producer was told, which is nothing if they were sent one way."""
        wanted = [
            {**dataclasses.asdict(message), "body": base64.b64encode(message.body).decode()} for message in messages
        ]
        return [
            Sent(
                status=row["status"],
                message_id=row["messageId"],
                offset_id=row["offsetId"],
                broker=row["broker"],
                queue_id=row["queueId"],
                queue_offset=row["queueOffset"],
            )
            for row in self.ask("send", name=producer, messages=wanted, mode=mode, batch=batch) or ()
        ]

    def consumer(
        self,
        name: str,
        topic: str,
        *,
        group: str,
        expression: str = "*",
        failures: Mapping[str, int] | None = None,
        **options: str | int | bool,
    ) -> str:
        """Start a consumer from the first offset and return its name.

        ``failures`` says how often it refuses a message, by the message's body.
        """
        wanted = {"topic": topic, "group": group, "expression": expression, "failures": dict(failures or {})}
        self.ask("consumer", name=name, **wanted, **options)
        return name

    def take(self, consumer: str, count: int, *, seconds: float = PATIENCE) -> list[Received]:
        """What the consumer was given since the last time, as soon as that is ``count`` messages."""
        return [received(row) for row in self.ask("take", name=consumer, count=count, seconds=seconds) or ()]

    def send_for(self, producer: str, topic: str, *, size: int, workers: int, seconds: float) -> Load:
        """Send messages for some seconds, so many at a time, each of which waits for its answer."""
        return Load(**self.ask("sendFor", name=producer, topic=topic, size=size, workers=workers, seconds=seconds))

    def counter(self, name: str, topic: str, *, group: str) -> str:
        """Start a consumer from the first offset that counts what it is given, and return its name."""
        self.ask("counter", name=name, topic=topic, group=group)
        return name

    def counted(self, counter: str, count: int, *, seconds: float = PATIENCE) -> Load:
        """What a counter was given since it was started, as soon as that is ``count`` messages."""
        return Load(**self.ask("counted", name=counter, count=count, seconds=seconds))

    def close(self, name: str) -> None:
        """Shut a producer or consumer down as its user does."""
        self.ask("close", name=name)

    def ask(self, what: str, **arguments: Any) -> Any:
        questions, answers = self._process.pipes
        try:
            questions.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
            questions.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise PeerError(f"{self._process.name} ended on {what}\n{self._process.quote()}")
        reply = json.loads(line)
        if "error" in reply:
            raise RefusedError(reply["error"])
        return reply["answer"]

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()

    def halt(self, is_halted: bool) -> None:
        """Let it stand still, or go on."""
        self._process.halt(is_halted)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


def received(row: dict[str, Any]) -> Received:
    """The message that a client described."""
    return Received(
        topic=row["topic"],
        body=base64.b64decode(row["body"]),
        tag=row["tag"],
        keys=row["keys"],
        queue_id=row["queueId"],
        queue_offset=row["queueOffset"],
        message_id=row["messageId"],
        offset_id=row["offsetId"],
        reconsume_times=row["reconsumeTimes"],
        store_host=row["storeHost"],
        properties=row["properties"],
    )
