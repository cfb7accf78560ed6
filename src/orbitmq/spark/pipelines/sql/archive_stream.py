"""The stream source of archived messages: the files of a topic at one moment, in the first batch.

Spark does not join what ends with what goes on, so an archive that a running query begins with is a stream too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.pipelines.archive.directory import Archive
from orbitmq.spark.schema.columns import arrow_schema_of, column_names, ddl_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from orbitmq.spark.pipelines.sql.archive_live_boundary import ArchiveMoment

FORMAT = "orbitmq-archived-files"
DONE = "files"
ROWS = 10_000
"""Rows of one batch that a task yields."""


class ArchivedFiles(DataSource):
    """The data source of archived files, with the options ``archive``, ``topic`` and ``files`` (paths as JSON)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl_of(column_names(self.options["columns"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return ArchivedFilesReader(
            self.options["archive"], self.options["topic"], json.loads(self.options["files"]), schema.names
        )


class ArchivedFilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Returns all files in one batch. Its offset is the number of files returned."""

    def __init__(self, archive: str, topic: str, files: Sequence[str], columns: Sequence[str]) -> None:
        self._archive = archive
        self._topic = topic
        self._files = list(files)
        self._columns = list(columns)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {DONE: 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        # A query that goes on another time has had what was archived since from brokers.
        return start if start[DONE] else {DONE: len(self._files)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The list of files is fixed."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(path) for path in self._files[start[DONE] : end[DONE]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises ArchiveError and OSError."""
        with plain_errors:
            archive = Archive(self._archive)
        schema = arrow_schema_of(self._columns)
        stored = [name for name in self._columns if name != "topic"]
        with archive.files.open_input_file(archive.within(partition.value)) as source:
            for batch in pq.ParquetFile(source).iter_batches(batch_size=ROWS, columns=stored):
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(
                        [self._column(batch, field) for field in schema], schema=schema
                    )

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name == "topic":
            return pa.repeat(pa.scalar(self._topic, pa.string()), batch.num_rows)
        column = batch.column(field.name)
        # Times may be in a finer unit, depending on the settings of the Parquet writer.
        return column if column.type == field.type else column.cast(field.type, safe=False)


def archived_stream(spark: SparkSession, moment: ArchiveMoment, topic: str, columns: Sequence[str]) -> DataFrame:
    """The messages of a topic that are archived at that moment."""
    spark.dataSource.register(ArchivedFiles)
    files = [file.path for file in moment.archived_files([topic])]
    return (
        spark.readStream.format(FORMAT)
        .options(archive=moment.path, topic=topic, files=json.dumps(files), columns=",".join(columns))
        .load()
    )
