"""Blocking face of message traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.query.by_key import ALWAYS
from orbitmq.client.sync.bridge import SyncLoop
from orbitmq.client.trace.query import MAX_TRACE_MESSAGES
from orbitmq.client.trace.query import trace_message as trace_message_async

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.trace.query import MessageTrace
    from orbitmq.remoting import ClientTls


def trace_message(
    name_servers: str | Iterable[str] | None,
    message_id: str,
    *,
    topic: str = "",
    most: int = MAX_TRACE_MESSAGES,
    begin_ms: int = 0,
    end_ms: int = ALWAYS,
    tls: ClientTls | None = None,
) -> MessageTrace:
    """The trace of the message with this id. See ``orbitmq.aio.trace_message``."""
    loop = SyncLoop.acquire()
    try:
        return loop.do(
            trace_message_async(
                name_servers, message_id, topic=topic, most=most, begin_ms=begin_ms, end_ms=end_ms, tls=tls
            )
        )
    finally:
        loop.release()
