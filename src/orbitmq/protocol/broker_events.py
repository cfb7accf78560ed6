"""The broker's own history, which RocketMQ does not have: its request and its answer.

A tool sends ``events_request`` and decodes the body of the answer with ``BrokerEvents.decode``. Apache's brokers
answer the request with REQUEST_CODE_NOT_SUPPORTED (3).
"""

import dataclasses
import enum
from collections.abc import Iterable
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body
from orbitmq.protocol.command.command import Command

GET_BROKER_EVENTS = 29001
"""Request code of OrbitMQ. RocketMQ uses none between 5,000 and 200,000, and binary headers carry up to 32,767."""

MAX_EVENTS = 1000
"""Events of one answer."""


class EventKind(enum.StrEnum):
    """Kinds of events."""

    BROKER_START = "BROKER_START"
    BROKER_STOP = "BROKER_STOP"
    CONSUMER_JOIN = "CONSUMER_JOIN"
    CONSUMER_LEAVE = "CONSUMER_LEAVE"
    PRODUCER_JOIN = "PRODUCER_JOIN"
    PRODUCER_LEAVE = "PRODUCER_LEAVE"
    REBALANCE = "REBALANCE"
    """The members of a group were notified of a change; the subject is the group."""
    ROLE_CHANGE = "ROLE_CHANGE"
    SLAVE_CONNECTED = "SLAVE_CONNECTED"
    """A slave copies the log; the subject is its address."""
    SLAVE_LOST = "SLAVE_LOST"
    SLAVE_REFUSED = "SLAVE_REFUSED"
    MASTER_CONNECTED = "MASTER_CONNECTED"
    """This slave copies the log of its master; the subject is the master's HA address."""
    MASTER_LOST = "MASTER_LOST"
    REPLICATION_STOPPED = "REPLICATION_STOPPED"
    """This slave does not copy the log: its disk is full, or its log differs from the master's."""
    TOPIC_CREATE = "TOPIC_CREATE"
    TOPIC_CHANGE = "TOPIC_CHANGE"
    TOPIC_DELETE = "TOPIC_DELETE"
    GROUP_CREATE = "GROUP_CREATE"
    GROUP_CHANGE = "GROUP_CHANGE"
    GROUP_DELETE = "GROUP_DELETE"
    SETTINGS_CHANGE = "SETTINGS_CHANGE"
    REQUEST_REFUSED = "REQUEST_REFUSED"
    """The subject is the request code."""
    SLOW_FLUSH = "SLOW_FLUSH"
    FLUSH_FAILED = "FLUSH_FAILED"
    SENDS_REFUSED = "SENDS_REFUSED"
    """All sends are refused from now on: a full disk, or a lagging event loop."""
    SENDS_ACCEPTED = "SENDS_ACCEPTED"
    """The end of SENDS_REFUSED."""


@dataclasses.dataclass(slots=True)
class BrokerEvent(Body):
    """One event."""

    sequence: int = 0
    """Counts events of the broker, over restarts."""
    timestamp: int = 0
    kind: str = ""
    """A name of ``EventKind``; a newer broker may have others."""
    subject: str = ""
    """The group, topic or request code that it is about."""
    detail: str = ""


@dataclasses.dataclass(slots=True)
class BrokerEvents(Body):
    """The events of an answer, oldest first (29001)."""

    events: list[BrokerEvent] = field(default_factory=list)
    oldest_sequence: int = 0
    """The oldest event that the broker still has; 0 if it has none."""
    next_sequence: int = 1
    """The sequence of the next event to happen."""


def events_request(
    *, since_ms: int = 0, after_sequence: int = 0, kinds: Iterable[str] = (), limit: int = MAX_EVENTS
) -> Command:
    """The request for the newest ``limit`` events of some kinds (default: all) since a time or after a sequence."""
    return Command(
        GET_BROKER_EVENTS,
        ext_fields={
            "since": str(since_ms),
            "afterSequence": str(after_sequence),
            "kinds": ",".join(kinds),
            "limit": str(limit),
        },
    )
