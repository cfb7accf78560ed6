"""The lock of an archive: one archive job at a time.

Only archives in directories have a lock. Object stores have none; there two jobs detect each other when they add
the same segment.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.archive.directory import OWN, ArchiveError
from orbitmq.spark.pipelines.run_lock import LockedError, run_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.spark.pipelines.archive.directory import Archive

LOCK = f"{OWN}/lock"


@contextlib.contextmanager
def locked(archive: Archive) -> Iterator[None]:
    """Hold the lock. Raises ArchiveError if another job has it, and OSError."""
    if not archive.is_local:
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(run_lock(archive.within(LOCK), f"the archive {archive.path!r} is being written"))
        except LockedError as error:
            raise ArchiveError(str(error)) from None
        yield
