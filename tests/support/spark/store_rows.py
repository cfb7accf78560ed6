"""Rows of a store as the format ``orbitmq-store`` gives them, read without Spark's JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.spark.store_source.datasource import FilteringStoreReader, StoreReader, StoreSource

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import DataSourceReader, Filter

Row = dict[str, Any]

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
    "map<string,string>": MapType(StringType(), StringType()),
}


def struct_of(ddl: str) -> StructType:
    """The schema that Spark parses from text; only Spark's JVM accepts any such text."""
    fields = [part.strip().split(" ", 1) for part in ddl.split(", ")]
    return StructType([StructField(name, _TYPES[kind]) for name, kind in fields])


def reader_of(path: str | Path, **options: str) -> DataSourceReader:
    """The reader of a store with these options, made as Spark makes it."""
    source = StoreSource({"path": str(path), **options})
    return source.reader(struct_of(source.schema()))


def table_of(reader: DataSourceReader) -> pa.Table:
    """All rows of a reader, part after part."""
    batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(batch.num_rows for batch in batches)
    schema = batches[0].schema if batches else pa.schema([])
    return pa.Table.from_batches(batches, schema)


def rows_of(path: str | Path, **options: str) -> list[Row]:
    """All rows of a store, part after part; maps as dicts."""
    rows: list[Row] = table_of(reader_of(path, **options)).to_pylist()
    for row in rows:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return rows


def filtered_rows_of(path: str | Path, filters: list[Filter], **options: str) -> tuple[list[Row], list[Filter]]:
    """The rows that a reader gives which was handed these filters, and the filters that it left to Spark."""
    plain = reader_of(path, **options)
    assert isinstance(plain, StoreReader)
    reader = FilteringStoreReader(plain._reading)
    left = list(reader.pushFilters(filters))
    return table_of(reader).to_pylist(), left
