"""Due slot: the units of one slot, collected newest first along their chain and delivered oldest first."""

from __future__ import annotations

import array
import collections
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.broker.deferred.real_topic import REAL_TOPIC
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find
from orbitmq.store.timer.timer_log import NO_UNIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.timer.timer_log import TimerLog, TimerUnit

_follow_timer_chain = native.load().follow_timer_chain
_UNIQ_KEY = names.UNIQUE_KEY.encode()


class DueSlot:
    """Units of one slot, as positions in the timer log until they are delivered: eight bytes each."""

    __slots__ = ("_left", "_log", "_next", "_recalls", "_skip_to", "_units", "markers", "time_ms")

    def __init__(self, log: TimerLog, time_ms: int, last: int, skip_to: int = NO_UNIT) -> None:
        """``skip_to``: units up to this position were delivered before."""
        self._log = log
        self.time_ms = time_ms
        self._next = last
        self._skip_to = skip_to
        self._units: array.array[int] = array.array("q")
        self.markers: list[TimerUnit] = []
        """Units of recall markers, to be read before anything is delivered."""
        self._recalls: dict[bytes, str] = {}
        self._left: collections.Counter[bytes] = collections.Counter()
        """By recall key, the number of markers minus that of recalled messages: a crash may leave a marker
        twice."""

    def collect(self, most: int) -> bool:
        """Follow the chain for up to ``most`` units; True if it has no more."""
        while most > 0:
            file = self._log.file_at(self._next)
            if file is not None:
                found, self._next, passed = _follow_timer_chain(*file, self._next, self._skip_to, most)
                self._units.frombytes(found)
                most -= passed
                if passed:
                    continue
            # The end of the chain, or a recall marker.
            unit = self._log.unit(self._next)
            if unit is None:
                self._next = NO_UNIT
                return True
            self.markers.append(unit)
            self._next = unit.previous
            most -= 1
        return False

    def __len__(self) -> int:
        return len(self._units)

    def oldest(self) -> tuple[int, TimerUnit | None]:
        """The next unit to deliver, with its position; None if it is gone."""
        return self._units[-1], self._log.unit(self._units[-1])

    def oldest_many(self, most: int) -> Iterator[tuple[int, TimerUnit | None]]:
        """The next units to deliver, with their positions."""
        positions = self.next_positions(most)
        return zip(positions, map(self._log.unit, positions), strict=True)

    def next_positions(self, most: int) -> array.array[int]:
        """The positions of the next units to deliver."""
        positions = self._units[-most:]
        positions.reverse()
        return positions

    def drop_oldest(self, count: int = 1) -> None:
        del self._units[len(self._units) - count :]

    def add_recall(self, key: bytes, topic: str) -> None:
        """Add the key of a recall marker."""
        self._recalls[key] = topic
        self._left[key] += 1

    @property
    def has_recalls(self) -> bool:
        """True if the slot has recall markers."""
        return bool(self._recalls)

    def is_recalled(self, properties: bytes) -> bool:
        """True if one of the markers recalls this message. Markers of some versions carry the topic too."""
        if not self._recalls:
            return False
        topic, key = find(properties, REAL_TOPIC) or b"", find(properties, _UNIQ_KEY) or b""
        for name in (key, topic + b"+" + key):
            if name in self._recalls:
                self._left[name] -= 1
                return True
        return False

    def miscounted(self) -> Iterator[tuple[str, int]]:
        """Corrections of counts by topic: each marker was counted as one message less."""
        for key, count in self._left.items():
            yield self._recalls[key], count
