"""Warm-up of a Spark worker before its first task, which shortens the time between two tasks."""

from __future__ import annotations

import functools
import gc
import os

_GOES_ON = "SPARK_REUSE_WORKER"
"""The variable that Spark sets in workers that it reuses."""


@functools.cache
def settle() -> None:
    """Exclude the objects that are in memory now, mostly modules, from garbage collection.

    After each task a worker collects garbage before the next. With the modules of Spark, Arrow and this package
    that takes 20 ms for sixty thousand objects that stay: as long as ten thousand rows, for each partition of a
    store and each queue of each micro-batch.
    """
    if _GOES_ON in os.environ:
        gc.freeze()
