"""What can go wrong for a user of the client, as one small tree. Every message says what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.protocol.bodies import MessageQueue


class OrbitMQError(Exception):
    """Something asked of the message queue was not done."""


class InvalidMessageError(OrbitMQError, ValueError):
    """A message, a name or an option cannot be what it is; nothing was sent."""


class NotRunningError(OrbitMQError):
    """A producer or consumer is not started, is closed, or belongs to another process or loop."""


class NoNameServerError(OrbitMQError):
    """No name server could be asked."""


class NoRouteError(OrbitMQError):
    """No broker serves a topic."""

    def __init__(self, topic: str, why: str = "") -> None:
        reason = f": {why}" if why else ""
        super().__init__(
            f"no broker serves the topic {topic!r}{reason}; create it, or let the brokers do it "
            "(autoCreateTopicEnable)"
        )
        self.topic = topic


class BrokerError(OrbitMQError):
    """A broker refused a request. ``code`` is RocketMQ's response code, ``remark`` what it said."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"the broker {address} refused it with code {code}: {remark or 'no reason was given'}")
        self.code = code
        self.remark = remark
        self.address = address


class SendError(OrbitMQError):
    """A message was not sent, or nobody knows whether it was. ``__cause__`` is what happened last."""


class SendTimeoutError(SendError, TimeoutError):
    """The time for sending a message was up. It may have been stored all the same."""


class TooManySendsError(SendError):
    """More messages wait to be sent than is allowed: send slower, or allow more."""


class RequestTimeoutError(OrbitMQError, TimeoutError):
    """A request was sent, and no reply came in time. It may have been worked on all the same."""

    code = 10006
    """What Java's clients call it."""

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(
            f"the request to {topic!r} was sent, but no reply came within {seconds:g} s: does somebody consume the "
            "topic and reply?"
        )
        self.topic = topic
        self.seconds = seconds

    def __reduce__(self) -> tuple[type[RequestTimeoutError], tuple[str, float]]:
        return type(self), (self.topic, self.seconds)


class CannotReplyError(InvalidMessageError):
    """There can be no reply to a message."""

    code = 10007
    """What Java's clients call it."""


class OffsetsLostError(OrbitMQError):
    """Messages of a range of a queue are not there any more; ``first`` is the first of them.

    What can be read of the range goes on at ``next_readable``, which is the range's end if nothing can.
    """

    def __init__(self, queue: MessageQueue, first: int, next_readable: int, why: str) -> None:
        super().__init__(
            f"the offsets {first} to {next_readable - 1} of queue {queue.queue_id} of {queue.topic!r} on "
            f"{queue.broker_name} are not there any more: {why}"
        )
        self.queue = queue
        self.first = first
        self.next_readable = next_readable
        self.why = why

    def __reduce__(self) -> tuple[type[OffsetsLostError], tuple[MessageQueue, int, int, str]]:
        # Between processes it has to arrive with what it says.
        return type(self), (self.queue, self.first, self.next_readable, self.why)
