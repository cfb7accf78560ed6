"""The stamp by which brokers and name servers tell whether a table has changed."""

import dataclasses

from orbitmq.protocol.bodies.codec import Body


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class DataVersion(Body):
    """``counter`` grows with every change, ``state_version`` with the broker's role; ``timestamp`` in ms."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0
