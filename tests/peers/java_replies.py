"""Those of Apache's Java clients who ask and wait for a reply, and those who reply."""

from __future__ import annotations

from typing import Any

from peers.java_client import JavaClient, Message, Started, message, outgoing


class JavaRequester(Started):
    """A producer that waits for replies."""

    KIND = "requester"

    def ask(self, topic: str, body: str | bytes, *, seconds: float = 30, **said: Any) -> Message:
        """The reply; ``said`` may have tags, keys, flag and properties. Raises JavaClientError."""
        return message(self._ask("ask", message=outgoing(topic, body, said), timeoutMs=round(seconds * 1000)))


class JavaReplier(Started):
    """Replies to every message of a topic with ``prefix`` and what was in it, ``times`` times over."""

    KIND = "replier"

    def __init__(
        self, jvm: JavaClient, group: str, topic: str, *, prefix: str = "reply to ", times: int = 1
    ) -> None:
        super().__init__(jvm, group, topic=topic, prefix=prefix, times=times)

    def asked(self) -> list[Message]:
        """What it has got."""
        return [message(row) for row in self._ask("asked")]
