"""What can go wrong for a user of the client, as one small tree. Every message says what to do about it."""

from __future__ import annotations


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
