"""Apache's ``mqadmin`` for many commands in one JVM, with a producer and a consumer for it to report about."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

from peers.apache import java_command
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class AdminRunner:
    """The JVM, which ends when this is left."""

    def __init__(self, *, home: Path, nameserver: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._process = PeerProcess(
            "mqadmin",
            java_command("AdminRunner", nameserver, home=home),
            home=home,
            environment={
                "ROCKETMQ_HOME": str(home),
                "NAMESRV_ADDR": nameserver,
                # Ids of messages hold the client's address, which so is of the same length on every machine.
                "JAVA_TOOL_OPTIONS": "-Djava.net.preferIPv4Stack=true",
            },
            conversation=True,
        )

    def run(self, *arguments: str) -> str:
        """Run a command and return what it printed."""
        return str(self._ask("mqadmin", *arguments))

    def consume(self, group: str, topic: str, count: int) -> None:
        """Start a consumer of a topic, and wait until it has consumed so many messages."""
        self._ask("consume", group, topic, str(count))

    def produce(self, group: str, topic: str, body: str) -> None:
        """Start a producer, which sends one message."""
        self._ask("produce", group, topic, body)

    def stop(self, group: str) -> None:
        """Shut the producer or consumer of a group down."""
        self._ask("stop", group)

    def _ask(self, *question: str) -> Any:
        questions, answers = self._process.pipes
        try:
            questions.write(json.dumps(question).encode() + b"\n")
            questions.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise PeerError(f"mqadmin ended on {question}\n{self._process.quote()}")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(f"mqadmin failed on {question}: {reply['error']}")
        return reply.get("answer")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
