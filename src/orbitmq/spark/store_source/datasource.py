"""The format ``orbitmq-store``: the commit log of a store directory as a table, without a broker.

``spark.read.format("orbitmq-store").load(directory)`` takes the options of ``StoreOptions``. Rows are the messages
that the store's queues serve, in the order of the log within a part. A store that is being written to is read up to
where it was when the query was planned; nothing is locked and nothing is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import SYNC_BROKER_MEMBER_PREFIX
from orbitmq.spark.errors import OptionError
from orbitmq.spark.schema.columns import COLUMNS, column_names, ddl_of
from orbitmq.spark.sessions.worker_warmup import settle
from orbitmq.spark.store_source.options import StoreOptions
from orbitmq.store.config_tables import TOPICS
from orbitmq.store.errors import StoreError
from orbitmq.store.tools.detect_layout import detect_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from orbitmq.spark.store_source.partition_reader import StoreLogReader
    from orbitmq.store.config import StoreConfig

QUEUE_DIRECTORIES = ("consumequeue", "batchconsumequeue")


class StoreSource(DataSource):
    """The data source of ``format("orbitmq-store")``."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-store"

    def schema(self) -> str:
        """The columns that the options select. Raises OptionError."""
        return ddl_of(StoreOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionError."""
        from orbitmq.spark.topic_source.datasource import takes_filters  # noqa: PLC0415

        options = StoreOptions.of(self.options)
        reading = _reading(options, schema)
        return FilteringStoreReader(reading) if options.push_filters and takes_filters() else StoreReader(reading)


class StoreReader(DataSourceReader):
    """Reads one store in one batch."""

    def __init__(self, reading: StoreLogReader) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        """Parts of the log files. Raises SparkSourceError."""
        from orbitmq.spark.store_source.partitioning import cut  # noqa: PLC0415

        settle()
        options = self._reading.options
        low, high = self._reading.row_filter.span("store_timestamp")
        lows = [ms for ms in (options.starting_ms, None if low is None else low // 1000) if ms is not None]
        highs = [ms for ms in (options.ending_ms, None if high is None else high // 1000) if ms is not None]
        with contextlib.closing(self._reading.opened()) as log:
            return list(cut(log, options.split_size, max(lows, default=None), min(highs, default=None)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part. Raises SparkSourceError."""
        from orbitmq.spark.store_source.partitioning import StorePartition  # noqa: PLC0415

        settle()
        # Without partitions Spark makes one with the value None.
        if isinstance(partition, StorePartition):
            yield from self._reading.read(partition)


class FilteringStoreReader(StoreReader):
    """The store reader that accepts filters of Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Accept the filters that can be applied here, and return the others."""
        from orbitmq.spark.topic_source.pushdown import compile_filters  # noqa: PLC0415
        from orbitmq.spark.topic_source.single_use import new_plan_id  # noqa: PLC0415

        row_filter, left = compile_filters(filters)
        self._reading = dataclasses.replace(self._reading, row_filter=row_filter, plan_id=new_plan_id())
        return left


def _reading(options: StoreOptions, schema: StructType) -> StoreLogReader:
    from orbitmq.spark.store_source.partition_reader import StoreLogReader  # noqa: PLC0415

    disk = LocalDisk()
    try:
        config = detect_log(disk, os.path.abspath(options.path))
    except (StoreError, ConfigError, OSError) as error:
        raise OptionError(f"path={options.path} cannot be read: {error}") from None
    _check_topics(options, disk, config)
    broker = options.broker or _broker_name(disk, config.path("config"))
    return StoreLogReader(options, config, _arrow_schema(schema), broker)


def _check_topics(options: StoreOptions, disk: LocalDisk, config: StoreConfig) -> None:
    """Raises OptionError for a topic that the store does not have, if it has a list of its topics."""
    known = stored_topics(disk, config)
    for topic in sorted(options.topics or ()):
        if known and topic not in known:
            near = difflib.get_close_matches(topic, known, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise OptionError(f"the store {options.path} has no topic {topic!r}{hint}")


def stored_topics(disk: LocalDisk, config: StoreConfig) -> frozenset[str]:
    """The topics that a store has a configuration or consume queues of. Empty if it has neither, a log only."""
    found: set[str] = set()
    for name in QUEUE_DIRECTORIES:
        directory = config.path(name)
        if (stat := disk.stat(directory)) is not None and stat.is_dir:
            found.update(disk.list(directory))
    directory = config.path("config")
    if disk.stat(os.path.join(directory, TOPICS.name)) is not None:
        with contextlib.suppress(StoreError, ProtocolError):
            found.update(TOPICS.load(disk, directory, read_only=True).topic_config_table or {})
    return frozenset(found)


def _arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of batches for the schema of a query. Raises OptionError."""
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
