"""What a worker of Spark's does before its first task, so that the time between two tasks is short."""

from __future__ import annotations

import functools
import gc
import os

_GOES_ON = "SPARK_REUSE_WORKER"
"""Spark says so to workers that are given one task after the other."""


@functools.cache
def settle() -> None:
    """Leave what is in memory now, which is mostly modules, out of all further collections of garbage.

    Behind every task such a worker collects garbage before it takes the next. With the modules of Spark, Arrow and
    this package that is a 50th of a second for sixty thousand objects that stay: as long as some ten thousand rows
    take, for each part of a store and each queue of each micro-batch.
    """
    if _GOES_ON in os.environ:
        gc.freeze()
