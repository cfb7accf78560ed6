"""A driver on a cluster of Spark's own that writes rows slowly, so that an executor can be killed meanwhile.

Afterwards it reads the topic and leaves in a file what there is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions

from orbitmq.spark import session

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS_AT_ONCE = 50
PAUSE = 0.2


def slowly(folder: str) -> Callable[[int], str]:
    def body(number: int) -> str:
        if number % ROWS_AT_ONCE == 0:
            from pyspark import TaskContext

            task = TaskContext.get()
            assert task is not None
            # Which process has come how far.
            name = f"task-{task.partitionId()}-{task.attemptNumber()}-{os.getpid()}-{number // ROWS_AT_ONCE}"
            Path(folder, name).touch()
            time.sleep(PAUSE)
        return str(number)

    return body


if __name__ == "__main__":
    master, nameserver, topic, rows, folder = sys.argv[1:]
    spark = session(
        "slow",
        master,
        **{
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
            "spark.sql.execution.python.udf.maxRecordsPerBatch": str(ROWS_AT_ONCE),
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
        },
    )
    body = functions.udf(slowly(folder), "string", useArrow=False)
    slow = spark.range(0, int(rows), numPartitions=2).select(body("id").alias("body"))
    slow.write.format("orbitmq").options(nameserver=nameserver, topic=topic, batchRows="20").mode("append").save()
    found = spark.read.format("orbitmq").options(nameserver=nameserver, subscribe=topic).load()
    counted = found.selectExpr(
        "count(*)", "count(DISTINCT body)", "count(DISTINCT unique_id)", "sum(int(string(body)))"
    )
    Path(folder, "found.json").write_text(json.dumps(list(counted.first() or ())))
    spark.stop()
