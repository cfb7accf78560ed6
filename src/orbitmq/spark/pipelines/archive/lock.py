"""One archiver at a time.

Only archives in directories have a lock; object stores know nothing of the kind, and there two archivers notice
each other when they add the same segment.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.archive.directory import OWN, ArchiveError
from orbitmq.spark.pipelines.holding import HeldError, held

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
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(archive.within(LOCK), f"the archive {archive.path!r} is being written"))
        except HeldError as error:
            raise ArchiveError(str(error)) from None
        yield
