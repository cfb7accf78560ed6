"""Connections for the RocketMQ remoting protocol: a server and a client on one asyncio loop.

Here belongs what is between a socket and a handler: reading and writing, matching of answers, TLS, PROXY headers,
time-outs and limits. What a request means does not belong here, nor what a topic is. Sockets come from the running
loop and time from its clock, so that a simulator can be that loop.
"""

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
from orbitmq.remoting.limits import Limits
from orbitmq.remoting.loops import new_event_loop, run
from orbitmq.remoting.server import Listener, RemotingServer
from orbitmq.remoting.taking import Taker
from orbitmq.remoting.tls import ClientTls, ServerTls, TlsMode
from orbitmq.remoting.writing import Buffer

__all__ = [
    "Answer",
    "Buffer",
    "CallTimeoutError",
    "ClientTls",
    "ConnectError",
    "Connection",
    "ConnectionLostError",
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
    "Taker",
    "TlsConfigError",
    "TlsMode",
    "TooManyCallsError",
    "new_event_loop",
    "run",
]
