"""The run lock: a lock file beside an archive, a replay or a migration, so that only one job works on it.

The lock ends with the process that holds it, also after a crash. The file names that process.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator


class LockedError(PipelineError):
    """Another job holds the lock."""


@contextlib.contextmanager
def run_lock(path: str, what: str) -> Iterator[None]:
    """Hold a lock file. ``what`` begins the sentence of LockedError. Raises OSError as well."""
    with open(path, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise LockedError(f"{what} by {holder}: only one may at a time") from None
        file.truncate(0)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {now} UTC")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
