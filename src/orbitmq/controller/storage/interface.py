"""GroupStorage: where the groups are kept, and which controller may change them.

Not here: what an event means, and when one is due. Pinned semantics:

- ``groups`` has committed state only. It may be read while ``leadership().is_leader``.
- ``commit`` returns when the event is durable and in ``groups``. If it raises, the event may or may not be: the
  storage then does not lead until it has read its state again.
- Commits of one group do not overlap; the caller sees to that.
- A storage that leads knows that no other one does: after a pause, or when etcd does not answer, it stops leading
  before another one can begin.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.controller.machine.events import Event
    from orbitmq.controller.machine.group import BrokerGroup


class NotLeaderError(Exception):
    """Another controller leads, or none."""


class CommitError(Exception):
    """An event could not be made durable."""


@dataclasses.dataclass(frozen=True, slots=True)
class Leadership:
    """The controllers as one of them knows them."""

    is_leader: bool
    leader_id: str
    """Empty while there is none."""
    leader_address: str
    peers: tuple[tuple[str, str], ...]
    """Ids and addresses."""


class GroupStorage(Protocol):
    """Storage of one controller."""

    address: str
    """Where brokers reach this controller; set by the server when it knows its port."""
    on_lead: Callable[[], None] | None
    """Called when this controller begins to lead."""

    @property
    def groups(self) -> Mapping[str, BrokerGroup]: ...

    def leadership(self) -> Leadership: ...

    async def start(self) -> None:
        """Read the state. Raises StoreError, ConfigError."""

    async def stop(self) -> None: ...

    async def commit(self, event: Event) -> None:
        """Make an event durable and apply it. Raises NotLeaderError, CommitError."""
