"""The schema of a query's rows: message columns, fields of bodies, and the column for unreadable bodies."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.spark.body.decoder import decoder_for, fields_of
from orbitmq.spark.errors import OptionError, SparkSourceError
from orbitmq.spark.records.to_arrow import arrow_batches
from orbitmq.spark.schema.columns import COLUMNS, ddl_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructField

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.message.record_columns import RecordColumns
    from orbitmq.spark.body.decoder import BodyDecoder
    from orbitmq.spark.topic_source.options import SourceOptions

CORRUPT = "_corrupt"
"""The column that takes bodies that cannot be read."""


def default_schema(options: SourceOptions) -> str | StructType:
    """The columns of a query that does not name them. Raises OptionError."""
    if options.body_format not in {None, "string"}:
        found = fields_of(options.given)
        if found is None:
            raise OptionError(
                f"bodyFormat={options.body_format} needs a schema: give that of the bodies with .schema(...), and "
                "in it columns of messages with an underscore before their names (_topic, _queue_offset)"
            )
        return found
    names = options.columns or [name for name in COLUMNS if name != "properties" or options.include_properties]
    if options.body_format is None:
        return ddl_of(names)
    return ", ".join("body string" if name == "body" else ddl_of([name]) for name in names)


@dataclasses.dataclass(frozen=True, slots=True)
class RowSchema:
    """The fields of rows in their order. It is pickled at the driver and used in the tasks."""

    arrow: pa.Schema
    columns: dict[str, str]
    """The columns of messages by their names in the rows."""
    body_fields: StructType | None = None
    """What is read from bodies; None if these are left as they are."""
    decoder: BodyDecoder | None = None
    """Reads them. It is made at the driver, where files are that its options name."""
    mode: str = ""

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> RowSchema:
        """The rows of a schema, the user's or the default one. Raises OptionError."""
        names = schema.fieldNames()
        if twice := {name for name in names if names.count(name) > 1}:
            raise OptionError(f"the schema has the column {min(twice)!r} twice")
        if not names:
            raise OptionError("the schema has no columns")
        if options.columns is not None and list(options.columns) != names:
            raise OptionError(
                f"columns={','.join(options.columns)} and the schema do not agree: that has {', '.join(names)}"
            )
        arrow = to_arrow_schema(schema, timezone="UTC")
        if options.body_format is None:
            return cls(arrow, {field.name: _checked(field, field.name) for field in schema})
        return cls._with_bodies(options, schema, arrow)

    @classmethod
    def _with_bodies(cls, options: SourceOptions, schema: StructType, arrow: pa.Schema) -> RowSchema:
        columns = {}
        body_fields = []
        for field in schema:
            name = field.name
            if name == CORRUPT:
                if field.dataType.simpleString() != "binary":
                    raise OptionError(f"the column {CORRUPT} is binary, not {field.dataType.simpleString()}")
            elif name.startswith("_") and name[1:] in COLUMNS:
                columns[name] = _checked(field, name[1:])
            elif options.body_format == "string" and name in COLUMNS and name != "body":
                columns[name] = _checked(field, name)
            else:
                body_fields.append(field)
        if not body_fields:
            raise OptionError(f"the schema has no field of the bodies: leave bodyFormat={options.body_format} out")
        fields = StructType(body_fields)
        return cls(arrow, columns, fields, decoder_for(options.given, fields, options.mode), options.mode)


def _checked(field: StructField, column: str) -> str:
    """A column of messages under its name and with its type. Raises OptionError."""
    if column not in COLUMNS:
        near = difflib.get_close_matches(column, COLUMNS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COLUMNS)}"
        raise OptionError(f"the schema has the column {field.name!r}, which messages do not have: {hint}")
    wanted = COLUMNS[column]
    if to_arrow_schema(StructType([field]), timezone="UTC").field(0).type != wanted.arrow:
        raise OptionError(
            f"the schema has the column {field.name!r} as {field.dataType.simpleString()}: it is {wanted.ddl}"
        )
    return column


class RowBuilder:
    """Makes rows of records, in one task."""

    def __init__(self, shape: RowSchema) -> None:
        self._shape = shape
        self._decoder = shape.decoder
        self._columns = list(dict.fromkeys(shape.columns.values()))
        if self._decoder is not None:
            self._columns = list(dict.fromkeys([*self._columns, "body", "queue_offset"]))

    def batches(self, records: RecordColumns, queue: MessageQueue) -> Iterator[pa.RecordBatch]:
        """Rows of one queue. Raises SparkSourceError for a body that cannot be read and has to be."""
        for batch in arrow_batches(records, self._columns, broker=queue.broker_name, topic=queue.topic):
            if self._decoder is None:
                made = pa.RecordBatch.from_arrays(batch.columns, schema=self._shape.arrow)
            else:
                made = self._decoded(self._decoder, batch, queue)
            if made.num_rows:
                self._check_required(made, queue)
                yield made

    def _check_required(self, made: pa.RecordBatch, queue: MessageQueue) -> None:
        """Raise for a null in a column that is not nullable; Spark would report an internal error."""
        for field, values in zip(made.schema, made.columns, strict=True):
            if not field.nullable and values.null_count:
                raise SparkSourceError(
                    f"the schema says that {field.name} is NOT NULL, but messages of queue {queue.queue_id} of "
                    f"{queue.topic!r} on {queue.broker_name} have none"
                )

    def _decoded(self, decoder: BodyDecoder, batch: pa.RecordBatch, queue: MessageQueue) -> pa.RecordBatch:
        shape = self._shape
        decoded = decoder.decode(batch.column("body"))
        bad = np.asarray(decoded.bad, np.bool_)
        if shape.mode == "FAILFAST" and bool(bad.any()):
            offset = batch.column("queue_offset")[int(np.argmax(bad))].as_py()
            raise SparkSourceError(
                f"the body at offset {offset} of queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name} "
                f"cannot be read ({decoded.reason}): with mode=PERMISSIVE its row has nulls, with "
                "mode=DROPMALFORMED it is left out"
            )
        assert shape.body_fields is not None
        fields = dict(zip(shape.body_fields.fieldNames(), decoded.columns, strict=True))
        arrays = []
        for field in shape.arrow:
            if field.name == CORRUPT:
                nothing = pa.scalar(None, pa.binary())
                arrays.append(pc.if_else(pa.array(bad), batch.column("body"), nothing))
            elif field.name in fields:
                arrays.append(fields[field.name])
            else:
                arrays.append(batch.column(shape.columns[field.name]))
        made = pa.RecordBatch.from_arrays(arrays, schema=shape.arrow)
        if shape.mode == "DROPMALFORMED" and bool(bad.any()):
            return made.filter(pa.array(~bad))
        return made
