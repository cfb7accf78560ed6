"""The format ``orbitmq-store``: the commit log of a store directory as a table, without a broker.

``spark.read.format("orbitmq-store").load(directory)`` takes the options of ``StoreOptions``. Rows are the messages
that the store's queues serve, in the order of the log within a part. A store that is being written to is read up to
where it was when the query was planned; nothing is locked and nothing is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import SYNC_BROKER_MEMBER_PREFIX
from orbitmq.settings import ConfigError
from orbitmq.spark.columns import COLUMNS, column_names, ddl_of
from orbitmq.spark.errors import OptionError
from orbitmq.spark.store_options import StoreOptions
from orbitmq.spark.worker_memory import settle
from orbitmq.store.config_json import TOPICS
from orbitmq.store.disk import LocalDisk
from orbitmq.store.errors import StoreError
from orbitmq.store.layout import detect_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from orbitmq.spark.store_reading import StoreReading


class StoreSource(DataSource):
    """What Spark makes for ``format("orbitmq-store")``."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-store"

    def schema(self) -> str:
        """The columns that the options ask for. Raises OptionError."""
        return ddl_of(StoreOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionError."""
        from orbitmq.spark.source import takes_filters  # noqa: PLC0415

        options = StoreOptions.of(self.options)
        reading = _reading(options, schema)
        return FilteringStoreReader(reading) if options.push_filters and takes_filters() else StoreReader(reading)


class StoreReader(DataSourceReader):
    """Reads one store in one batch."""

    def __init__(self, reading: StoreReading) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        """Parts of the log files. Raises SparkSourceError."""
        from orbitmq.spark.store_slices import cut  # noqa: PLC0415

        settle()
        options = self._reading.options
        low, high = self._reading.row_filter.span("store_timestamp")
        lows = [ms for ms in (options.starting_ms, None if low is None else low // 1000) if ms is not None]
        highs = [ms for ms in (options.ending_ms, None if high is None else high // 1000) if ms is not None]
        with contextlib.closing(self._reading.opened()) as log:
            return list(cut(log, options.split_size, max(lows, default=None), min(highs, default=None)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part. Raises SparkSourceError."""
        from orbitmq.spark.store_slices import StoreSlice  # noqa: PLC0415

        settle()
        # Spark makes a partition of its own where there is none.
        if isinstance(partition, StoreSlice):
            yield from self._reading.read(partition)


class FilteringStoreReader(StoreReader):
    """The same for a planner that hands over filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over what can be; the rest is Spark's."""
        from orbitmq.spark.pushdown import compile_filters  # noqa: PLC0415

        row_filter, left = compile_filters(filters)
        self._reading = dataclasses.replace(self._reading, row_filter=row_filter)
        return left


def _reading(options: StoreOptions, schema: StructType) -> StoreReading:
    from orbitmq.spark.store_reading import StoreReading  # noqa: PLC0415

    disk = LocalDisk()
    try:
        config = detect_log(disk, os.path.abspath(options.path))
    except (StoreError, ConfigError, OSError) as error:
        raise OptionError(f"path={options.path} cannot be read: {error}") from None
    broker = options.broker or _broker_name(disk, config.path("config"))
    return StoreReading(options, config, _arrow_schema(schema), broker)


def _arrow_schema(schema: StructType) -> pa.Schema:
    """What batches have to look like for a schema, which somebody may have given. Raises OptionError."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    column_names(",".join(schema.fieldNames()))
    arrow = to_arrow_schema(schema, timezone="UTC")
    for field, given in zip(arrow, schema, strict=True):
        if field.type != COLUMNS[field.name].arrow:
            raise OptionError(
                f"the schema has the column {field.name!r} as {given.dataType.simpleString()}: "
                f"it is {COLUMNS[field.name].ddl}"
            )
    return arrow


def _broker_name(disk: LocalDisk, directory: str) -> str | None:
    """The name of the broker that wrote a store: one of a broker's own topics is named after it."""
    if disk.stat(os.path.join(directory, TOPICS.name)) is None:
        return None
    try:
        table = TOPICS.load(disk, directory, read_only=True).topic_config_table or {}
    except (StoreError, ProtocolError):
        return None
    names = [
        topic.removeprefix(SYNC_BROKER_MEMBER_PREFIX)
        for topic in table
        if topic.startswith(SYNC_BROKER_MEMBER_PREFIX)
    ]
    return names[0] if len(names) == 1 else None
