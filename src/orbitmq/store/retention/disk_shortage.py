"""Disk shortage: the bytes to free on a disk that is too full, so that forced cleanup removes no more than that.

Removing a file may free its space late: a reader still has it mapped, or the file system frees blocks in the
background. So ``Shortage`` counts a removed file as freed even before the disk shows it, and uses the smaller of
expected and measured shortage. If that was too optimistic, the next round removes more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk, Space


class Shortage:
    """The shortage of a store's disks, updated after each removed log file.

    The log's directories may lie on several disks, and one with room is enough. The consume queues share a disk
    with the log or have their own; a log file frees nothing there by itself, only the queue files that follow it,
    so one log file per round goes for their sake.
    """

    def __init__(self, disk: Disk, log_dirs: tuple[str, ...], queue_dir: str, level: float) -> None:
        self._disk = disk
        self._level = level
        spaces = {path: disk.space(path) for path in log_dirs}
        queues = disk.space(queue_dir)
        self._log_excess = {path: self._excess(space) for path, space in spaces.items()}
        # Equal numbers at the same moment: the same disk.
        self._queues_alone = queues not in spaces.values()
        self._queue_excess = self._excess(queues) if self._queues_alone else 0

    @property
    def lasts(self) -> bool:
        """True while more files must be removed."""
        return min(self._log_excess.values()) > 0 or self._queue_excess > 0

    def on_removed(self, directory: str, size: int) -> None:
        """Account for a removed log file of this size."""
        for path, before in self._log_excess.items():
            measured = self._excess(self._disk.space(path))
            self._log_excess[path] = min(measured, before - size) if path == directory else min(measured, before)
        self._queue_excess = 0

    def _excess(self, space: Space) -> int:
        """Bytes above the level, at least 1 if the ratio that RocketMQ computes is above it."""
        if space.ratio <= self._level:
            return 0
        return max(space.used - int((space.used + space.usable) * self._level), 1)
