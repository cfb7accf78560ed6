"""A user's program: creates a session, and prints its settings and those of a worker."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from orbitmq.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SETTINGS = ("spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.sql.python.filterPushdown.enabled")


def places(_: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Where a worker has its interpreter and PySpark."""
    import pyspark

    yield sys.executable, pyspark.__file__


if __name__ == "__main__":
    spark = session("a user's", **{"spark.sql.ansi.enabled": "false"})
    context = spark.sparkContext
    settings = {name: spark.conf.get(name) for name in (*SETTINGS, "spark.sql.ansi.enabled")}
    worker = context.parallelize([0], 1).mapPartitions(places).collect()[0]
    json.dump(
        {"master": context.master, "name": context.appName, "settings": settings, "worker": worker}, sys.stdout
    )
    spark.stop()
