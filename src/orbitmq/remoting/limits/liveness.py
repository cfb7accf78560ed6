"""Liveness of a connection: its times, compared with the limits. It decides; the connection closes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.protocol.command.frame import FrameParser
    from orbitmq.remoting.limits.connection_limits import Limits


class Liveness:
    """When a connection was last used, stopped taking bytes, began a frame, and began to close.

    All times are of the event loop. Each method is called by the periodic review, except for ``begin_stall`` and
    ``begin_close``.
    """

    __slots__ = ("_closing_since", "_frame_begun", "_frame_since", "_quiet_since", "_stalled_since", "_unsent")

    def __init__(self) -> None:
        self._closing_since = 0.0
        self._frame_begun = 0
        """Number of the incomplete frame whose time runs."""
        self._frame_since = 0.0
        self._quiet_since = 0.0
        self._stalled_since = 0.0
        self._unsent = 0

    def begin_close(self, now: float) -> None:
        self._closing_since = now

    def is_close_overdue(self, now: float, limits: Limits) -> bool:
        return now - self._closing_since >= limits.closing_seconds

    def begin_stall(self, now: float, unsent: int) -> None:
        """The peer has stopped reading, with so many bytes unsent."""
        self._stalled_since = now
        self._unsent = unsent

    def is_stalled(self, now: float, unsent: int, limits: Limits) -> bool:
        """The peer has not read a byte for too long."""
        if unsent < self._unsent:
            self._stalled_since = now
        is_over = unsent >= self._unsent and now - self._stalled_since >= limits.stalled_seconds
        self._unsent = unsent
        return is_over

    def late_frame_seconds(self, now: float, parser: FrameParser, limits: Limits, *, is_paused: bool) -> float:
        """Age of the incomplete frame if it should be complete by now; otherwise 0. Paused time does not count."""
        if self._frame_begun != parser.begun or is_paused:
            self._frame_begun = parser.begun
            self._frame_since = now
        age = now - self._frame_since
        allowed = limits.frame_seconds + parser.needed_bytes / limits.frame_bytes_per_second
        return age if age >= allowed else 0.0

    def used(self, now: float) -> None:
        self._quiet_since = now

    def is_idle(self, now: float, limits: Limits) -> bool:
        return now - self._quiet_since >= limits.idle_seconds
