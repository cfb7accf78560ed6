"""Producers of messages for a time, of Apache's Java client."""

from __future__ import annotations

from typing import Any

from peers.java_client import Sent, Started, outgoing, sent


class JavaTimedProducer(Started):
    """A producer whose messages wait for their time."""

    KIND = "timed"

    def send(self, topic: str, body: str | bytes, times: dict[str, int], **message: Any) -> tuple[Sent, str | None]:
        """What it was told, and the recall handle. ``times`` has ``delayTimeSec``, ``delayTimeMs`` or so."""
        row = self._ask("send", message=outgoing(topic, body, message), times=times)
        return sent(row), row.get("recallHandle")

    def recall(self, topic: str, handle: str) -> str:
        """Take a message back; its id."""
        answer: str = self._ask("recall", topic=topic, handle=handle)
        return answer
