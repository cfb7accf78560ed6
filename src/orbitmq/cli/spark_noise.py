"""Spark's own words, kept apart from ours: those of its JVM and of its Python processes."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def spark_words_to(path: str | None) -> Iterator[None]:
    """What is started meanwhile says what it says on standard error to a file, or to nobody.

    A query that has rows enough ends the processes that read for it, which they tell at length; what goes wrong is
    raised here as well. Raises OSError.
    """
    if not _is_real():
        yield
        return
    target = os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # A process that is started gets descriptor 2. We go on speaking through another one.
    ours = os.dup(2)
    before = sys.stderr
    os.dup2(target, 2)
    os.close(target)
    sys.stderr = os.fdopen(os.dup(ours), "w", buffering=1, encoding=before.encoding, errors=before.errors)
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = before
        os.dup2(ours, 2)
        os.close(ours)


def _is_real() -> bool:
    try:
        return sys.stderr.fileno() == 2
    except (OSError, ValueError):
        return False
