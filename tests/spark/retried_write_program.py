"""A driver whose tasks are tried again: one of them fails once in the middle of its rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.spark import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FAILS_AT = 777
"""How many rows the task has written or is about to when it fails."""


def failing_once(folder: str) -> Callable[[Iterable[int]], Iterator[tuple[str]]]:
    def rows(numbers: Iterable[int]) -> Iterator[tuple[str]]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        failed = Path(folder) / f"failed-{task.partitionId()}"
        for place, number in enumerate(numbers):
            if place == FAILS_AT and task.partitionId() == 0 and not failed.exists():
                failed.touch()
                raise RuntimeError("this task fails once")
            yield (str(number),)

    return rows


if __name__ == "__main__":
    nameserver, topic, count, folder = sys.argv[1:]
    spark = session("retried", "local[2,4]", **{"spark.sql.execution.arrow.maxRecordsPerBatch": "50"})
    numbers = spark.sparkContext.parallelize(range(int(count)), 2)
    frame = spark.createDataFrame(numbers.mapPartitions(failing_once(folder)), "body string")
    frame.write.format("orbitmq").options(nameserver=nameserver, topic=topic).mode("append").save()
    json.dump({"failed": sorted(path.name for path in Path(folder).glob("failed-*"))}, sys.stdout)
    spark.stop()
