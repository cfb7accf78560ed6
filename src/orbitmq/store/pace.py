"""Long work on an event loop, done in slices: whoever comes meanwhile waits for the end of one, not of the work.

For work on thousands of things each of which takes microseconds. A thread would be no better a place for it: with
every system call it would have to get the interpreter lock back from a busy loop.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_SECONDS = 0.0009
"""A little less than a millisecond: uvloop tells the time in whole ones, and a slice ends with the current one."""
PIECES_AT_ONCE = 64
"""A slice ends after so many pieces of work too, for a loop whose time is virtual and does not pass meanwhile."""
LONGEST_PAUSE_SECONDS = 0.05
"""Where there is time for it, work takes a hundredth of the loop's, and others do not notice it."""
PAUSE_SECONDS = 0.004
"""With this between slices the work takes a fifth of the loop's time."""
SHORT_PAUSE_SECONDS = 0.001
"""With this, a half."""


def _is_calm() -> bool:
    return False


class Pace:
    """Says when to pause, and pauses. The first slice begins when it is made.

    Work of so many ``pieces`` is spread over ``seconds``, by how many of them slices turn out to have time for; of
    a number that is not known it takes a fifth of the loop's time. After these seconds it is late, and takes a
    fifth, after as many again a half. When ``is_hurried`` says so there are no pauses: somebody waits for the end
    of the work, and nobody is left to be served.

    Seconds are counted in slices and pauses, not by the clock: work is not late because its process or the machine
    stood still for a while.
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
        self._take_pauses_of(LONGEST_PAUSE_SECONDS if pieces else PAUSE_SECONDS)
        self._begin_slice()

    def _take_pauses_of(self, seconds: float) -> None:
        self._pause = seconds
        self._time_left = self._seconds

    def _begin_slice(self) -> None:
        self._pieces = 0
        self._slice_end = self._time() + SLICE_SECONDS

    def is_due(self) -> bool:
        """Whether others should have a turn now. To be asked after every piece of work."""
        self._pieces += 1
        is_over = self._pieces >= PIECES_AT_ONCE or self._time() >= self._slice_end
        return is_over and not self._is_hurried()

    async def pause(self) -> None:
        """Let others have their turn; afterwards the next slice begins."""
        self._slices += 1
        self._done += self._pieces
        if self._time_left <= 0 and self._pause > SHORT_PAUSE_SECONDS:
            self._take_pauses_of(PAUSE_SECONDS if self._pause > PAUSE_SECONDS else SHORT_PAUSE_SECONDS)
        pause = self._pause if self._pause <= PAUSE_SECONDS else self._share_of_time()
        self._time_left -= pause + SLICE_SECONDS
        await asyncio.sleep(pause)
        self._begin_slice()

    def _share_of_time(self) -> float:
        """What the next pause may take of the time that is left, if slices go on as they did so far."""
        assert self._all is not None
        pieces = self._done / self._slices if self._done else PIECES_AT_ONCE
        slices = max((self._all - self._done) / pieces, 1)
        return min(max(self._time_left / slices - SLICE_SECONDS, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
