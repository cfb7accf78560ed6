"""Time slicing: long work on the event loop, interrupted so that requests wait for one slice only.

For work on thousands of items that take microseconds each. A thread would not be better: after every system call it
would have to get the interpreter lock back from a busy loop.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_SECONDS = 0.0009
"""A little less than a millisecond: uvloop's clock has whole ones, and a slice ends with the current one."""
PIECES_AT_ONCE = 64
"""A slice also ends after this many items, for a loop in virtual time that does not pass during a slice."""
MAX_PAUSE_SECONDS = 0.05
"""Maximum pause: with enough time, the work takes a hundredth of the loop's time, which is not noticeable."""
PAUSE_SECONDS = 0.004
"""With this pause between slices the work takes a fifth of the loop's time."""
SHORT_PAUSE_SECONDS = 0.001
"""With this pause, a half."""


def _is_calm() -> bool:
    return False


class Pace:
    """Decides when to pause, and pauses. The first slice begins at construction.

    Work of a known number of ``pieces`` is spread over ``seconds``, by how many of them fit into a slice; with an
    unknown number it takes a fifth of the loop's time. After these seconds it is late and takes a fifth, after
    twice as long a half. While ``is_hurried`` is true there are no pauses: the store is stopping and has nothing
    else to serve.

    Seconds are counted in slices and pauses, not by the clock: work is not late because the process or the machine
    was suspended.
    """

    def __init__(
        self, seconds: float = math.inf, is_hurried: Callable[[], bool] = _is_calm, pieces: int | None = None
    ) -> None:
        self._time = asyncio.get_running_loop().time
        self._is_hurried = is_hurried
        self._seconds = seconds
        self._all = pieces
        self._done = 0
        self._slices = 0
        self._take_pauses_of(MAX_PAUSE_SECONDS if pieces else PAUSE_SECONDS)
        self._begin_slice()

    def _take_pauses_of(self, seconds: float) -> None:
        self._pause = seconds
        self._time_left = self._seconds

    def _begin_slice(self) -> None:
        self._pieces = 0
        self._slice_end = self._time() + SLICE_SECONDS

    def is_due(self) -> bool:
        """True if the loop should run other work now. Check after every item."""
        self._pieces += 1
        is_over = self._pieces >= PIECES_AT_ONCE or self._time() >= self._slice_end
        return is_over and not self._is_hurried()

    async def pause(self) -> None:
        """Yield to the loop; the next slice begins afterwards."""
        self._slices += 1
        self._done += self._pieces
        if self._time_left <= 0 and self._pause > SHORT_PAUSE_SECONDS:
            self._take_pauses_of(PAUSE_SECONDS if self._pause > PAUSE_SECONDS else SHORT_PAUSE_SECONDS)
        pause = self._pause if self._pause <= PAUSE_SECONDS else self._share_of_time()
        self._time_left -= pause + SLICE_SECONDS
        await asyncio.sleep(pause)
        self._begin_slice()

    def _share_of_time(self) -> float:
        """The next pause's share of the remaining time, at the rate of the slices so far."""
        assert self._all is not None
        pieces = self._done / self._slices if self._done else PIECES_AT_ONCE
        slices = max((self._all - self._done) / pieces, 1)
        return min(max(self._time_left / slices - SLICE_SECONDS, PAUSE_SECONDS), MAX_PAUSE_SECONDS)
