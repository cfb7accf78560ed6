"""The process that asks Spark for the quickstart: a question in JSON as its argument, the answer in JSON."""

import json
import sys
import time
from typing import Any

from orbitmq.spark.sessions.session import session

FOR_ONE_QUERY = {
    # What the second compiler, another collector, plans that change and code made for one query cost is never
    # earned back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}

RETRY_SECONDS = 10
"""Short: the broker is on this machine, and runs as long as the tour that needs the result."""


def main(question: dict[str, str]) -> dict[str, Any]:
    started = time.monotonic()
    spark = session("orbitmq quickstart", "local[2]", **FOR_ONE_QUERY)
    up = time.monotonic()
    try:
        topic = spark.read.format("orbitmq").options(
            nameserver=question["nameserver"], subscribe=question["topic"], retrySeconds=RETRY_SECONDS
        )
        topic.load().createOrReplaceTempView(question["topic"])
        answer = spark.sql(question["sql"])
        rows = [list(row) for row in answer.collect()]
        ended = time.monotonic()
    finally:
        spark.stop()
    return {
        "columns": answer.columns,
        "rows": rows,
        "start_seconds": up - started,
        "query_seconds": ended - up,
    }


if __name__ == "__main__":
    json.dump(main(json.loads(sys.argv[1])), sys.stdout)
