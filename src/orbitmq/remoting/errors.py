"""Errors of connections. Every message is one sentence."""

from __future__ import annotations


class RemotingError(Exception):
    """Base of all errors between two peers."""


class ListenError(RemotingError):
    """A server cannot listen on its address."""


class TlsConfigError(RemotingError):
    """The configured certificates cannot be used."""


class ConnectError(RemotingError):
    """A peer could not be reached."""


class ConnectionLostError(RemotingError):
    """The connection was lost. The peer may or may not have processed the request."""


class CallTimeoutError(RemotingError):
    """No response before the timeout. The peer may or may not have processed the request."""


class TooManyCallsError(RemotingError):
    """The limit of calls in flight, or of unsent bytes, is reached on this connection; nothing was sent."""


class IdleError(RemotingError):
    """The connection was closed because it was idle."""


class SlowReaderError(RemotingError):
    """The connection was closed because the peer does not read."""


class SlowFrameError(RemotingError):
    """The connection was closed because the rest of a frame did not arrive in time."""


class MemoryBudgetError(RemotingError):
    """The connection was closed because the memory budget was exceeded and it held more than the others."""


def one_sentence(error: BaseException) -> str:
    """Type and first line of an error, short enough for a remark or a log line."""
    text = sendable(str(error).partition("\n")[0][:300])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def sendable(text: str) -> str:
    """A text without lone surrogates, which a peer's JSON may contain and ours must not."""
    return text.encode("utf-8", "replace").decode("utf-8")
