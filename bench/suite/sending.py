"""Sends of one shape as a load: a name, a topic, and a round of it on a server."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from bench.server import raw_load
from bench.server.systems import QUEUES
from peers.process import PeerError

if TYPE_CHECKING:
    from bench.server.measures import Sample
    from bench.server.systems import Server

KIB = 1024
_FILL_SECONDS = 600


@dataclasses.dataclass(frozen=True, slots=True)
class Sending:
    """Messages of one size, so many requests in flight on so many connections."""

    body: int
    connections: int
    in_flight: int
    batch: int = 1
    """Messages in a request."""
    queues: int = QUEUES
    topics: int = 1
    """With so many queues each."""
    most: int = 0
    """Messages of a round at most; 0 for as many as there is time for."""
    headers: str = "json"
    """The client whose headers the requests have."""

    @property
    def name(self) -> str:
        batch = f" in batches of {self.batch}" if self.batch > 1 else ""
        name = f"send {size_text(self.body)}{batch}, {self.connections} × {self.in_flight}"
        return name if self.headers == "json" else f"{name}, {raw_load.HEADERS[self.headers]} headers"

    @property
    def topic(self) -> str:
        """The name, or what is in front of the number of each of several.

        Names are as long for few queues as for many: a longer one makes more of every request, record and answer.
        """
        name = f"Bench-sent-{self.body}-{self.topics:02}x{self.queues:04}"
        return f"{name}-00" if self.topics == 1 else name

    def make_topics(self, server: Server) -> None:
        """The server runs."""
        names = [self.topic] if self.topics == 1 else [f"{self.topic}-{number:02}" for number in range(self.topics)]
        for name in names:
            server.make_topic(name, self.queues)

    def measure(self, server: Server, seconds: float) -> Sample:
        """One round."""
        return raw_load.sample(*self._run(server, seconds, self.most))

    def fill(self, server: Server, messages: int) -> None:
        """Send so many, in as many rounds as that takes."""
        left = messages
        while left > 0:
            # What is refused because the server is busy is sent again.
            found, _ = self._run(server, _FILL_SECONDS, -(-left // self._step) * self._step)
            if not found.messages:
                raise PeerError(f"{server.name} took none of {left} messages: {found.failure}")
            left -= found.messages

    @property
    def _step(self) -> int:
        """Connections share messages, and a batch is whole."""
        return self.batch * self.connections

    def _run(self, server: Server, seconds: float, most: int) -> tuple[raw_load.Finding, float]:
        options: dict[str, str | float] = {
            "mode": "send-batch" if self.batch > 1 else "send",
            "headers": self.headers,
            "connections": self.connections,
            "in-flight": self.in_flight,
            "body": self.body,
            "topic": self.topic,
            "topics": self.topics,
            "queues": self.queues,
            "batch": self.batch,
            "seconds": seconds,
            "messages": most,
        }
        return raw_load.run_load(self.name, options, server, seconds)


def size_text(size: int) -> str:
    """Bytes as people write them."""
    return f"{size // KIB} KiB" if size >= KIB else f"{size} B"
