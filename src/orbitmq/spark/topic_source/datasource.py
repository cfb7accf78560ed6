"""The format ``orbitmq``: topics as tables and streams.

``spark.read`` and ``spark.readStream`` take the options of ``SourceOptions``, writing those of the sink.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.topic_source.options import READING, SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

FILTER_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The Python program of Spark that plans reads with filters."""

_SHARED = {"nameserver", "topic"}


class OrbitMQSource(DataSource):
    """The data source of ``format("orbitmq")``."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq"

    def schema(self) -> StructType | str:
        """The columns that the options select. Raises OptionError."""
        from orbitmq.spark.schema.row_schema import default_schema  # noqa: PLC0415

        with plain_errors:
            return default_schema(SourceOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionError."""
        from orbitmq.spark.schema.row_schema import RowSchema  # noqa: PLC0415
        from orbitmq.spark.topic_source.batch_reader import FilteringBatchReader, TopicBatchReader  # noqa: PLC0415

        with plain_errors:
            options = SourceOptions.of(self.options).for_batch()
            shape = RowSchema.of(options, schema)
        if options.push_filters and takes_filters():
            return FilteringBatchReader(options, shape)
        return TopicBatchReader(options, shape)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Raises OptionError."""
        from orbitmq.spark.schema.row_schema import RowSchema  # noqa: PLC0415
        from orbitmq.spark.topic_source.stream_reader import TopicStreamReader  # noqa: PLC0415

        with plain_errors:
            options = SourceOptions.of(self.options).for_stream()
            return TopicStreamReader(options, RowSchema.of(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises OptionError."""
        from orbitmq.spark.sink.writer import batch_writer  # noqa: PLC0415

        with plain_errors:
            return batch_writer(self._sink_options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Raises OptionError."""
        from orbitmq.spark.sink.writer import stream_writer  # noqa: PLC0415

        with plain_errors:
            return stream_writer(self._sink_options(), schema, overwrite)

    def _sink_options(self) -> dict[str, str]:
        """The options without those of the reader: a table has one set of options for both."""
        reading = {name.lower() for name in READING} - _SHARED
        return {name: value for name, value in self.options.items() if name.lower() not in reading}


def takes_filters() -> bool:
    """True if this process passes filters to readers.

    Spark refuses a reader that accepts filters if pushdown is off, which is the default, and a reader cannot see
    that setting. But reads with filters are planned by a program of their own.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return FILTER_PLANNER in sys.modules or getattr(main, "name", None) == FILTER_PLANNER
