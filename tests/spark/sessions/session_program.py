"""A program of somebody: makes a session, and prints what it and a worker of it are like."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from orbitmq.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_ROWS = ("spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.sql.python.filterPushdown.enabled")


def places(_: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Where a worker has its interpreter and PySpark."""
    import pyspark

    yield sys.executable, pyspark.__file__


if __name__ == "__main__":
    spark = session("somebody's", **{"spark.sql.ansi.enabled": "false"})
    context = spark.sparkContext
    said = {name: spark.conf.get(name) for name in (*MAX_ROWS, "spark.sql.ansi.enabled")}
    worker = context.parallelize([0], 1).mapPartitions(places).collect()[0]
    json.dump({"master": context.master, "name": context.appName, "said": said, "worker": worker}, sys.stdout)
    spark.stop()
