"""What can go wrong with a connection, as one small tree. Every message says what happened in one sentence."""

from __future__ import annotations


class RemotingError(Exception):
    """Something between two peers did not work."""


class ListenError(RemotingError):
    """A server cannot listen on the address it was given."""


class TlsConfigError(RemotingError):
    """The certificates that were configured cannot be used."""


class ConnectError(RemotingError):
    """A peer could not be reached."""


class ConnectionLostError(RemotingError):
    """The connection is gone. Whether the peer has done what was asked of it is not known."""


class CallTimeoutError(RemotingError):
    """No answer came in time. Whether the peer has done what was asked of it is not known."""


class TooManyCallsError(RemotingError):
    """As many calls as allowed wait for their answers on this connection; nothing was sent."""


class IdleError(RemotingError):
    """Nothing went over the connection for so long that it was closed."""


class SlowReaderError(RemotingError):
    """The peer does not read what it is sent, so it was closed."""


def one_sentence(error: BaseException) -> str:
    """The kind of an error and the first line of its text, short enough for a remark or a log line."""
    text = sendable(str(error).partition("\n")[0][:300])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def sendable(text: str) -> str:
    """A text without halves of characters, which a peer's JSON can hold and ours cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
