"""Progress of the timer, shared by enqueue and dequeue."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.broker.timer.slot import DueSlot


@dataclasses.dataclass(slots=True)
class TimerProgress:
    """Up to where messages were entered and delivered. Belongs to the event loop."""

    read_time_ms: int = 0
    """All slots before this time were delivered."""
    write_time_ms: int = 0
    """The current slot, into which messages are still entered."""
    queue_offset: int = 0
    """Offset in the timer queue: messages before it were entered."""
    waiting: int = 0
    """Number of deferred messages."""
    due: DueSlot | None = None
    """The slot at ``read_time_ms``, if it has units."""
    in_part: dict[int, int] = dataclasses.field(default_factory=dict)
    """Partially delivered slots by time, with the positions up to which they were delivered: the one at
    ``read_time_ms``, and others if the clock was set back meanwhile."""
    is_changed: bool = False
    """True if it has to be saved."""
