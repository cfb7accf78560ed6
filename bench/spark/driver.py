"""A Spark driver that reads requests, one JSON object a line, and answers with rows and seconds.

It is run by the Python of either system, of which only pyspark is the same: nothing else may be imported here.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Bodies differ from row to row, as those of messages do, and are of one length: a number, padded.
_PADDING = "."


class Driver:
    """One Spark session and the system that it reads from and writes to."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._format: str = settings["format"]
        self._options: dict[str, str] = settings["options"]
        self._body: str = settings["body"]
        builder = SparkSession.Builder().master("local[2]").appName("bench")
        for key, value in settings["conf"].items():
            builder = builder.config(key, value)
        self._spark = builder.getOrCreate()

    def batch(self, topic: str, columns: list[str], options: dict[str, str]) -> int:
        """Read a whole topic, and give every row to a sink that drops it."""
        frame = self._spark.read.format(self._format).options(**self._options, **options, subscribe=topic).load()
        if columns:
            frame = frame.select(*columns)
        return _drop(frame)

    def stream(self, topic: str, rows_a_trigger: int, columns: list[str], options: dict[str, str]) -> int:
        """The same by micro-batches, until everything is read that was there at the start."""
        frame = (
            self._spark.readStream.format(self._format)
            .options(**self._options, **options, subscribe=topic, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", str(rows_a_trigger))
            .load()
        )
        if columns:
            frame = frame.select(*columns)
        with tempfile.TemporaryDirectory(prefix="orbitmq-bench-checkpoint-") as folder:
            query = (
                frame.writeStream.format("noop")
                .option("checkpointLocation", folder)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            return sum(progress["numInputRows"] for progress in query.recentProgress)

    def sink(self, topic: str, rows: int, size: int) -> int:
        """Write rows that Spark makes up."""
        number = f.col("id").cast("string")
        frame = self._spark.range(0, rows, 1, 2).select(f.rpad(number, size, _PADDING).alias(self._body))
        frame.write.format(self._format).mode("append").options(**self._options, topic=topic).save()
        return rows

    def scan(self, path: str, options: dict[str, str]) -> int:
        """Read a store directory."""
        return _drop(self._spark.read.format("orbitmq-store").options(**options).load(path))


def _drop(frame: DataFrame) -> int:
    """Make every row and keep none; how many there were is counted on the way, which costs next to nothing."""
    seen = Observation()
    frame.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def main() -> None:
    driver = Driver(json.loads(sys.stdin.readline()))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        verb = request.pop("do")
        began = time.perf_counter()
        try:
            answer = {"rows": getattr(driver, verb)(**request), "seconds": time.perf_counter() - began}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
