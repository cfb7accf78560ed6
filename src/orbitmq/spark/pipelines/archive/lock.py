"""One archiver at a time: whoever adds to an archive holds a lock on it, and says who it is.

A lock ends with the process that holds it, however that ends. Only archives in directories have one; object stores
know nothing of the kind, and there two archivers notice each other when they add the same segment.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.archive.directory import OWN, ArchiveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.spark.pipelines.archive.directory import Archive

LOCK = f"{OWN}/lock"


@contextlib.contextmanager
def locked(archive: Archive) -> Iterator[None]:
    """Raises ArchiveError if another one adds to the archive, and OSError."""
    if not archive.is_local:
        yield
        return
    with open(archive.within(LOCK), "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise ArchiveError(
                f"the archive {archive.path!r} is being written by {holder}: only one may at a time"
            ) from None
        file.truncate(0)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {now} UTC")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
