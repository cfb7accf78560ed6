"""Errors of the operator's client. Every message is a sentence, and says what to do where that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class AdminError(OrbitMQError):
    """Base of the errors of administration."""


class InvalidRequestError(AdminError, ValueError):
    """An argument is invalid. Nothing was sent."""


class UnreachableError(AdminError):
    """A server does not respond, or broke off the connection. A change may or may not have been made."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} does not respond: {reason}")
        self.address = address
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnreachableError], tuple[str, str]]:
        return type(self), (self.address, self.reason)


class NotFoundError(AdminError):
    """Something with this name does not exist. ``kind`` is its noun: topic, group, broker, cluster, message."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        super().__init__(f"the {kind} {name!r} does not exist" + (f": {hint}" if hint else ""))
        self.kind = kind
        self.name = name
        self.hint = hint

    def __reduce__(self) -> tuple[type[NotFoundError], tuple[str, str, str]]:
        return type(self), (self.kind, self.name, self.hint)


class RefusedError(AdminError):
    """A server refused a request. ``code`` is RocketMQ's response code, ``remark`` the server's reason."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        # The Java server puts a stack trace or a URL behind the first line.
        reason = (remark or "").partition("\n")[0].strip() or "no reason given"
        super().__init__(f"{address} refused the request with code {code}: {reason}")
        self.code = code
        self.remark = remark
        self.address = address

    def __reduce__(self) -> tuple[type[RefusedError], tuple[int, str | None, str]]:
        return type(self), (self.code, self.remark, self.address)


class UnsupportedError(RefusedError):
    """A server does not know the request: it is older, or does not have the feature."""


class ClientOfflineError(RefusedError):
    """The group, or the client, is not connected to the broker."""


class PartialFailureError(AdminError):
    """A change was made at some servers and failed at others. ``failed`` has the errors by address."""

    def __init__(self, what: str, done: tuple[str, ...], failed: Mapping[str, Exception]) -> None:
        at = "; ".join(str(error) for error in failed.values())
        where = f"done at {', '.join(done)}" if done else "done nowhere"
        super().__init__(f"{what} failed at {len(failed)} of {len(done) + len(failed)} servers ({where}): {at}")
        self.what = what
        self.done = done
        self.failed = dict(failed)

    def __reduce__(self) -> tuple[type[PartialFailureError], tuple[str, tuple[str, ...], dict[str, Exception]]]:
        return type(self), (self.what, self.done, self.failed)


def refusal(code: int, remark: str | None, address: str) -> RefusedError:
    """The error of a response code."""
    if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return UnsupportedError(code, remark, address)
    if code == ResponseCode.CONSUMER_NOT_ONLINE:
        return ClientOfflineError(code, remark, address)
    return RefusedError(code, remark, address)
