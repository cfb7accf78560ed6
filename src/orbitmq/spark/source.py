"""The format ``orbitmq``: topics as tables and streams.

``spark.read`` and ``spark.readStream`` take the options of ``SourceOptions``, writing those of the sink.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from orbitmq.spark.options import READING, SourceOptions
from orbitmq.spark.plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

FILTER_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The program that plans reads with filters."""

_SHARED = {"nameserver", "topic"}


class OrbitMQSource(DataSource):
    """What Spark makes for ``format("orbitmq")``."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq"

    def schema(self) -> StructType | str:
        """The columns that the options ask for. Raises OptionError."""
        from orbitmq.spark.row_shape import default_schema  # noqa: PLC0415

        with plain_errors:
            return default_schema(SourceOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionError."""
        from orbitmq.spark.batch_reader import FilteringBatchReader, TopicBatchReader  # noqa: PLC0415
        from orbitmq.spark.row_shape import RowShape  # noqa: PLC0415

        with plain_errors:
            options = SourceOptions.of(self.options).for_batch()
            shape = RowShape.of(options, schema)
        if options.push_filters and takes_filters():
            return FilteringBatchReader(options, shape)
        return TopicBatchReader(options, shape)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Raises OptionError."""
        from orbitmq.spark.row_shape import RowShape  # noqa: PLC0415
        from orbitmq.spark.stream_reader import TopicStreamReader  # noqa: PLC0415

        with plain_errors:
            options = SourceOptions.of(self.options).for_stream()
            return TopicStreamReader(options, RowShape.of(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises OptionError."""
        from orbitmq.spark.sink import batch_writer  # noqa: PLC0415

        with plain_errors:
            return batch_writer(self._sink_options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Raises OptionError."""
        from orbitmq.spark.sink import stream_writer  # noqa: PLC0415

        with plain_errors:
            return stream_writer(self._sink_options(), schema, overwrite)

    def _sink_options(self) -> dict[str, str]:
        """Without those of reading: a table has one set of options for both."""
        reading = {name.lower() for name in READING} - _SHARED
        return {name: value for name, value in self.options.items() if name.lower() not in reading}


def takes_filters() -> bool:
    """Whether this process hands filters to readers.

    A reader that takes filters is refused by Spark where they are switched off, as they are by default; and nothing
    tells a reader. But a program of its own plans with filters.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return FILTER_PLANNER in sys.modules or getattr(main, "name", None) == FILTER_PLANNER
