"""Streaming queries that copy a topic, and how the copies are compared with it, by Spark itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHUNK_ROWS = 25
"""Rows of one request to a broker: few, so that a task has several of them, and may be killed between two."""


class Copies:
    """Two copies of a topic: another topic, and Parquet files."""

    def __init__(self, spark: SparkSession, nameserver: str, topic: str, folder: Path) -> None:
        self._spark = spark
        self._nameserver = nameserver
        self._topic = topic
        self._copy = f"{topic}-copy"
        self._files = str(folder / "files")
        self._checkpoints = [folder / "checkpoint-of-topic", folder / "checkpoint-of-files"]

    def start(self, limit: int, *, is_last: bool = False) -> list[StreamingQuery]:
        """Begin or go on, with so many messages in each batch; the last time only to the end of the topic."""
        reading = self._spark.readStream.format("orbitmq").options(
            nameserver=self._nameserver,
            subscribe=self._topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(limit),
        )
        # Loaded twice: queries that share a plan get in each other's way inside of Spark.
        messages, same = reading.load(), reading.load()
        # Half of the messages keep their ids, and the others are given new ones: the sink knows both again.
        ids = "IF(queue_offset % 2 = 0, unique_id, NULL) AS unique_id"
        to_topic = messages.selectExpr("body", "tags", "keys", ids).writeStream.format("orbitmq")
        to_topic = to_topic.options(nameserver=self._nameserver, topic=self._copy, batchRows=str(CHUNK_ROWS))
        to_files = same.writeStream.format("parquet").option("path", self._files)
        started = []
        for writing, checkpoint in zip((to_topic, to_files), self._checkpoints, strict=True):
            query = writing.option("checkpointLocation", str(checkpoint))
            started.append((query.trigger(availableNow=True) if is_last else query).start())
        return started

    def batches(self) -> list[int]:
        """The number of finished batches of each query."""
        return [1 + max(map(int, _names(checkpoint / "commits")), default=-1) for checkpoint in self._checkpoints]

    # What came of it

    def source(self) -> DataFrame:
        return self._read(self._topic)

    def copy(self) -> DataFrame:
        return self._read(self._copy)

    def files(self) -> DataFrame:
        return self._spark.read.parquet(self._files)

    def _read(self, topic: str) -> DataFrame:
        options = {"nameserver": self._nameserver, "subscribe": topic}
        return self._spark.read.format("orbitmq").options(**options).load()


def _names(folder: Path) -> list[str]:
    """Those of a checkpoint's files that are complete: numbers."""
    return [path.name for path in folder.glob("*") if path.name.isdecimal()]


def differences(original: DataFrame, copy: DataFrame, columns: list[str]) -> tuple[int, int]:
    """The numbers of rows that the copy lacks, and that it has in excess."""
    left, right = original.select(*columns), copy.select(*columns)
    return left.exceptAll(right).count(), right.exceptAll(left).count()
