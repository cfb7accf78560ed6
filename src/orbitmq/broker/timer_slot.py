"""The slot that is due: its units, found newest first along their chain and given out oldest first."""

from __future__ import annotations

import array
import collections
from typing import TYPE_CHECKING

from orbitmq.broker.real_place import REAL_TOPIC
from orbitmq.kernel import follow
from orbitmq.protocol import property_names as names
from orbitmq.protocol.properties import find
from orbitmq.store.timer_log import NO_UNIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.timer_log import TimerLog, TimerUnit

_UNIQ_KEY = names.UNIQUE_KEY.encode()


class DueSlot:
    """The units of one slot. They are positions until it is their turn: a million of them is eight megabytes."""

    __slots__ = ("_left", "_log", "_next", "_skip_to", "_taken_back", "_units", "markers", "time_ms")

    def __init__(self, log: TimerLog, time_ms: int, last: int, skip_to: int = NO_UNIT) -> None:
        """``skip_to``: what is up to this position was delivered before."""
        self._log = log
        self.time_ms = time_ms
        self._next = last
        self._skip_to = skip_to
        self._units: array.array[int] = array.array("q")
        self.markers: list[TimerUnit] = []
        """Units of messages that take others back, to be read before anything is delivered."""
        self._taken_back: dict[bytes, str] = {}
        self._left: collections.Counter[bytes] = collections.Counter()
        """By the keys in markers, how many more of them there are than messages: after a crash one may be there
        twice."""

    def collect(self, most: int) -> bool:
        """Follow the chain for so many units; True if that was all."""
        while most > 0:
            file = self._log.file_at(self._next)
            if file is not None:
                found, self._next, passed = follow(*file, self._next, self._skip_to, most)
                self._units.frombytes(found)
                most -= passed
                if passed:
                    continue
            # The end of the chain, or one that takes another back.
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
        """The unit that is to be delivered next, with its position; None if it is gone."""
        return self._units[-1], self._log.unit(self._units[-1])

    def oldest_many(self, most: int) -> Iterator[tuple[int, TimerUnit | None]]:
        """The units that are to be delivered next, with their positions."""
        positions = self.next_positions(most)
        return zip(positions, map(self._log.unit, positions), strict=True)

    def next_positions(self, most: int) -> array.array[int]:
        """The positions of the units that are to be delivered next."""
        positions = self._units[-most:]
        positions.reverse()
        return positions

    def drop_oldest(self, count: int = 1) -> None:
        del self._units[len(self._units) - count :]

    def take_back(self, key: bytes, topic: str) -> None:
        """A marker has this key."""
        self._taken_back[key] = topic
        self._left[key] += 1

    @property
    def takes_back(self) -> bool:
        """Whether there are markers at all."""
        return bool(self._taken_back)

    def is_taken_back(self, properties: bytes) -> bool:
        """Whether a message is meant by one of the markers. Those of some versions say of which topic it is."""
        if not self._taken_back:
            return False
        topic, key = find(properties, REAL_TOPIC) or b"", find(properties, _UNIQ_KEY) or b""
        for name in (key, topic + b"+" + key):
            if name in self._taken_back:
                self._left[name] -= 1
                return True
        return False

    def miscounted(self) -> Iterator[tuple[str, int]]:
        """By how much the counts of topics are off: each marker was counted as one message less."""
        for key, count in self._left.items():
            yield self._taken_back[key], count
