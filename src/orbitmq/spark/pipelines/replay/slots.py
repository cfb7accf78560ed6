"""The number of sender tasks: all run at once, so the slots of the cluster limit it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOINING_SECONDS = 30.0
"""The time that executors have to join before the replay is refused for too few."""
_POLL = 0.5


def senders_for(spark: SparkSession, queues: int, requested: int | None) -> int:
    """The number of senders, at most one per queue. Raises OptionError for more than can run at once."""
    if requested is None:
        return min(queues, slots(spark))
    wanted = min(requested, queues)
    until = time.monotonic() + JOINING_SECONDS
    while (there := slots(spark)) < wanted:
        if time.monotonic() >= until or _is_local(spark):
            raise OptionError(
                f"{wanted} senders have to run at once, and this Spark has room for {there} tasks: ask for fewer "
                "with --senders, or give it more cores"
            )
        time.sleep(_POLL)
    return wanted


def slots(spark: SparkSession) -> int:
    """The number of tasks that run at once."""
    try:
        context = spark.sparkContext
    except Exception:
        # A session of Spark Connect has no context, and says so in its own way.
        return 1
    try:
        inside = context._jsc.sc()
        found = int(inside.maxNumConcurrentTasks(inside.resourceProfileManager().defaultResourceProfile()))
    except Exception:
        # No public part of Spark.
        found = 0
    return found or int(context.defaultParallelism)


def _is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")
