"""One run at a time: whoever works on something holds a lock file beside it, which says who it is.

A lock ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.running import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator


class HeldError(PipelineError):
    """Somebody else holds it."""


@contextlib.contextmanager
def held(path: str, what: str) -> Iterator[None]:
    """Hold a lock file. ``what`` is being done to begins the sentence of HeldError. Raises OSError as well."""
    with open(path, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise HeldError(f"{what} by {holder}: only one may at a time") from None
        file.truncate(0)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {now} UTC")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
