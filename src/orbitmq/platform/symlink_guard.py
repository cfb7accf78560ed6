"""SymlinkGuard: refuses paths that lead over a symbolic link below a data directory."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

LINK_REFUSED = "OrbitMQ follows no symbolic links below a data directory"

_MAX_DIRECTORIES = 1 << 17
"""Directories that are cached as free of links: one for each queue, and some."""


class SymlinkGuard:
    """The protected directories, and which directories below them are free of links."""

    __slots__ = ("_flags", "_protected")

    def __init__(self) -> None:
        self._protected: set[str] = set()
        """Directories, each with a trailing separator, below which no path may lead over a link."""
        self._flags: dict[str, int] = {}
        """Checked directories, with the flag for files in them."""

    def protect(self, directory: str) -> None:
        """Refuse links below this directory from now on. The directory itself may be one."""
        self._protected.add(directory.rstrip(os.sep) + os.sep)
        self._flags.clear()

    def check(self, path: str) -> int:
        """Raise ``ELOOP`` if a path leads over a link below a protected directory.

        Returns the flag that keeps ``os.open`` from following a link created at this moment.
        """
        flag = self.check_directory(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if flag and stat.S_ISLNK(os.lstat(path).st_mode) and path + os.sep not in self._protected:
                raise OSError(errno.ELOOP, LINK_REFUSED, path)
        return flag

    def check_directory(self, path: str) -> int:
        """``check`` without the last part of the path, which the flag covers.

        A directory is checked once: queues write thousands of pages a second, and only the user of this process can
        replace a directory below one with mode 0700 later.
        """
        directory = os.path.dirname(path)
        flag = self._flags.get(directory)
        if flag is None:
            flag = self._look_for_links(directory)
            if len(self._flags) >= _MAX_DIRECTORIES:
                self._flags.clear()
            self._flags[directory] = flag
        return flag

    def _look_for_links(self, directory: str) -> int:
        probe = directory + os.sep
        above = max((top for top in self._protected if probe.startswith(top)), key=len, default=None)
        if above is None:
            return 0
        at = len(above) - 1
        while 0 <= at < len(directory):
            at = directory.find(os.sep, at + 1)
            part = directory if at < 0 else directory[:at]
            try:
                if stat.S_ISLNK(os.lstat(part).st_mode):
                    raise OSError(errno.ELOOP, LINK_REFUSED, part)
            except (FileNotFoundError, NotADirectoryError):
                break
        return os.O_NOFOLLOW
