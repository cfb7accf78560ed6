"""Exceptions of the client. Each message says what to do about the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.protocol.bodies import MessageQueue


class OrbitMQError(Exception):
    """Base class of the client's exceptions."""


class InvalidMessageError(OrbitMQError, ValueError):
    """A message, a name or an option is invalid. Nothing was sent."""


class InvalidOptionError(InvalidMessageError):
    """An option of a producer or consumer is unknown, or its value is of another type or out of range."""


class BodyError(OrbitMQError, ValueError):
    """A body is not what a handler or ``message.json()`` expects: not JSON, or not of the type."""


class NotRunningError(OrbitMQError):
    """A producer or consumer is not started, closed, or belongs to another process or event loop."""


class NoNameServerError(OrbitMQError):
    """No name server responds."""


class NoRouteError(OrbitMQError):
    """No broker serves a topic. ``exists``: the topic is there, or was a moment ago, but has no master now."""

    def __init__(self, topic: str, why: str = "", *, exists: bool = False) -> None:
        reason = f": {why}" if why else ""
        advice = "; create it, or let the brokers do it (autoCreateTopicEnable)"
        super().__init__(
            f"no broker serves the topic {topic!r}{' now' if exists else ''}{reason}{advice * (not exists)}"
        )
        self.topic = topic
        self.exists = exists


_ADVICE = {
    "username cannot be null": "give access_key= and secret_key=, or ORBITMQ_ACCESS_KEY and ORBITMQ_SECRET_KEY",
    "No accessKey is configured": "give access_key= and secret_key=, or ORBITMQ_ACCESS_KEY and ORBITMQ_SECRET_KEY",
    "check signature failed": "the secret key is not that of this user",
}
"""What to do about a refusal, by its beginning: servers, Apache's as well, only say what they miss."""


class BrokerError(OrbitMQError):
    """A broker refused a request. ``code`` is RocketMQ's response code, ``remark`` the reason."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        server = address if address.startswith("the ") else f"the broker {address}"
        reason = remark or "no reason given"
        advice = next((text for start, text in _ADVICE.items() if reason.startswith(start)), None)
        more = "" if advice is None else f": {advice}"
        super().__init__(f"{server} refused the request with code {code}: {reason.rstrip('.')}{more}")
        self.code = code
        self.remark = remark
        self.address = address


class SendError(OrbitMQError):
    """A message was not sent, or its outcome is unknown. ``__cause__`` is the error of the last attempt."""


class SendTimeoutError(SendError, TimeoutError):
    """A send timed out. The broker may have stored the message nevertheless."""


class TooManySendsError(SendError):
    """Too many messages are in flight: send slower, or raise the limit."""


class RequestTimeoutError(OrbitMQError, TimeoutError):
    """A request was sent, but no reply arrived in time. A consumer may have processed it nevertheless."""

    code = 10006
    """The code of Java's clients for this error."""

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(
            f"the request to {topic!r} was sent, but no reply arrived within {seconds:g} s: does a consumer of "
            "the topic reply?"
        )
        self.topic = topic
        self.seconds = seconds

    def __reduce__(self) -> tuple[type[RequestTimeoutError], tuple[str, float]]:
        return type(self), (self.topic, self.seconds)


class CannotReplyError(InvalidMessageError):
    """A message cannot be replied to."""

    code = 10007
    """The code of Java's clients for this error."""


class OffsetsLostError(OrbitMQError):
    """Messages of a range of a queue no longer exist; ``first`` is the offset of the first missing one.

    ``next_readable`` is the offset behind the gap, or the end of the range if nothing follows.
    """

    def __init__(self, queue: MessageQueue, first: int, next_readable: int, why: str) -> None:
        super().__init__(
            f"the offsets {first} to {next_readable - 1} of queue {queue.queue_id} of {queue.topic!r} on "
            f"{queue.broker_name} no longer exist: {why}"
        )
        self.queue = queue
        self.first = first
        self.next_readable = next_readable
        self.why = why

    def __reduce__(self) -> tuple[type[OffsetsLostError], tuple[MessageQueue, int, int, str]]:
        # Pickled between processes with all attributes.
        return type(self), (self.queue, self.first, self.next_readable, self.why)
