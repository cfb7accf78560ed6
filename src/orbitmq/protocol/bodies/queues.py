"""A message queue's name, and the locks that orderly consumers take on queues."""

import dataclasses
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body, java


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class MessageQueue(Body):
    """One queue of a topic on one broker. Sorts as Java sorts it: topic, broker, number."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class LockBatchRequestBody(Body):
    """Lock these queues for a client of a group (41); the body of unlock (42) is the same."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class UnlockBatchRequestBody(LockBatchRequestBody):
    """Give the locks back (42)."""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class LockBatchResponseBody(Body):
    """The queues that are locked for the asking client now."""

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, metadata=java("lockOKMQSet"))
