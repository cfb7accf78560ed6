"""RocketMQ's remoting protocol over TCP: a server and a client on one asyncio event loop.

This package is everything between a socket and a request handler: reading and writing, matching of responses, TLS,
PROXY headers, timeouts and limits. Not here: the meaning of requests, and topics. Sockets come from the running
event loop and time from its clock, so that a simulator can take the place of the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.platform.event_loop import new_event_loop, run
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.connection import Answer, Connection, Handler
from orbitmq.remoting.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    IdleError,
    ListenError,
    RemotingError,
    SlowReaderError,
    TlsConfigError,
    TooManyCallsError,
)
from orbitmq.remoting.gather_write import Buffer
from orbitmq.remoting.interceptor import FrameInterceptor
from orbitmq.remoting.limits.connection_limits import Limits
from orbitmq.remoting.tls.context import ClientTls, ServerTls, TlsMode

if TYPE_CHECKING:
    from orbitmq.remoting.server import Listener, RemotingServer

__all__ = [
    "Answer",
    "Buffer",
    "CallTimeoutError",
    "ClientTls",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
    "FrameInterceptor",
    "Handler",
    "IdleError",
    "Limits",
    "ListenError",
    "Listener",
    "RemotingClient",
    "RemotingError",
    "RemotingServer",
    "ServerTls",
    "SlowReaderError",
    "TlsConfigError",
    "TlsMode",
    "TooManyCallsError",
    "new_event_loop",
    "run",
]


def __getattr__(name: str) -> object:
    """Load the server at its first use: clients do not need it."""
    if name not in {"Listener", "RemotingServer"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orbitmq.remoting import server  # noqa: PLC0415

    found: object = getattr(server, name)
    globals()[name] = found
    return found
