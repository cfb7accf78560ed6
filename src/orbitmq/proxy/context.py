"""Context of one call: who calls, and until when an answer is useful."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from orbitmq.proxy.http2.stream import Stream

DEFAULT_SECONDS = 3.0
"""Time for a call without a deadline; the request timeout of the official clients."""


class CallContext(NamedTuple):
    """Caller, deadline and address of a call, from its metadata and its connection."""

    client_id: str
    language: str
    client_version: str
    remote_address: str
    subject: str
    """The authenticated user; empty without access control."""
    seconds: float | None
    """Time until the deadline; None if the call has none."""

    @property
    def timeout(self) -> float:
        """Time for requests to a broker."""
        return DEFAULT_SECONDS if self.seconds is None else max(self.seconds, 0.001)


def call_context(stream: Stream, subject: str) -> CallContext:
    """The context of a call."""
    get = stream.metadata.get
    return CallContext(
        client_id=get("x-mq-client-id", "").strip(),
        language=get("x-mq-language", ""),
        client_version=get("x-mq-client-version", ""),
        remote_address=stream.peer,
        subject=subject,
        seconds=stream.seconds_left,
    )
