"""Filter pushdown: filters of a query that the reader applies, and the ranges and tags that they exclude.

A filter is pushed down if it is on one column with plain values. The reader applies it to each message exactly as
Spark would, and Spark does not apply it again. Filters on topic, broker, queue, offset, store time and tag also
exclude queues, offset ranges and tags before anything is read.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from orbitmq.spark.records.to_arrow import to_arrow
from orbitmq.spark.schema.columns import COLUMNS, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    import numpy.typing as npt

    from orbitmq.protocol.message.record_columns import RecordColumns

_COMPARED = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_MATCHED = {StringStartsWith: pc.starts_with, StringEndsWith: pc.ends_with, StringContains: pc.match_substring}

_KINDS: dict[pa.DataType, type] = {
    pa.string(): str,
    pa.int32(): int,
    pa.int64(): int,
    TIMESTAMP: datetime.datetime,
}
"""The Python type of filter values by column type. Filters on other columns are left to Spark."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclasses.dataclass(frozen=True, slots=True)
class Test:
    """One filter on one column of messages. ``test`` is the filter without a Not around it."""

    column: str
    test: Filter
    is_negated: bool = False

    def __str__(self) -> str:
        value = getattr(self.test, "value", None)
        text = f"{self.column} {type(self.test).__name__}" + ("" if value is None else f" {value!r}")
        return f"not {text}" if self.is_negated else text

    def holds(self, values: pa.Array) -> pa.Array:
        """A boolean for each value. As in SQL, a comparison with null is neither true nor false."""
        found = _evaluated(self.test, values)
        return pc.fill_null(pc.invert(found) if self.is_negated else found, False)

    def least_and_most(self) -> tuple[int | None, int | None]:
        """The inclusive range of matching numbers; times in microseconds."""
        if self.is_negated:
            return None, None
        if isinstance(self.test, In):
            numbers = [_number(value) for value in self.test.value if value is not None]
            # Nothing is in an empty list.
            return (min(numbers), max(numbers)) if numbers else (1, 0)
        value = getattr(self.test, "value", None)
        if value is None:
            return None, None
        number = _number(value)
        match self.test:
            case EqualTo() | EqualNullSafe():
                return number, number
            case GreaterThan():
                return number + 1, None
            case GreaterThanOrEqual():
                return number, None
            case LessThan():
                return None, number - 1
            case LessThanOrEqual():
                return None, number
        return None, None

    def choice(self) -> frozenset[str] | None:
        """The matching texts, if the filter names them."""
        if self.is_negated:
            return None
        match self.test:
            case EqualTo(value=str(value)) | EqualNullSafe(value=str(value)):
                return frozenset({value})
            case In(value=values):
                return frozenset(value for value in values if value is not None)
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class RowFilter:
    """The filters that were pushed down; a row has to match all."""

    tests: tuple[Test, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tests)

    def __str__(self) -> str:
        return " and ".join(map(str, self.tests)) or "everything"

    def mask(
        self, records: RecordColumns, *, broker: str | None, topic: str | None = None
    ) -> npt.NDArray[np.bool_] | None:
        """The mask of matching records; None for all of them."""
        found: pa.Array | None = None
        for column in dict.fromkeys(test.column for test in self.tests):
            values = to_arrow(records, [column], broker=broker, topic=topic).column(0)
            for test in self.tests:
                if test.column == column:
                    held = test.holds(values)
                    found = held if found is None else pc.and_(found, held)
        if found is None:
            return None
        mask: npt.NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
        return mask

    def without(self, *columns: str) -> RowFilter:
        """The filters on other columns."""
        return RowFilter(tuple(test for test in self.tests if test.column not in columns))

    def allows(self, column: str, value: str | int | None) -> bool:
        """True if rows with this value in a column can match."""
        values = pa.array([value], COLUMNS[column].arrow)
        return all(test.holds(values)[0].as_py() for test in self.tests if test.column == column)

    def span(self, column: str) -> tuple[int | None, int | None]:
        """The inclusive range of matching numbers of a column; times in microseconds."""
        edges = [test.least_and_most() for test in self.tests if test.column == column]
        lows = [low for low, _ in edges if low is not None]
        highs = [high for _, high in edges if high is not None]
        return max(lows, default=None), min(highs, default=None)

    def choice(self, column: str) -> frozenset[str] | None:
        """The matching texts of a column, if the filters name them."""
        named = [found for test in self.tests if test.column == column and (found := test.choice()) is not None]
        return frozenset.intersection(*named) if named else None


def compile_filters(
    filters: Iterable[Filter], columns: Mapping[str, str] | None = None
) -> tuple[RowFilter, list[Filter]]:
    """Separate filters that can be pushed down from those that Spark has to apply.

    ``columns`` are the columns of messages by the names that they have in the query, where these differ.
    """
    tests, left = [], []
    for given in filters:
        test = _test_of(given, columns)
        if test is None:
            left.append(given)
        else:
            tests.append(test)
    return RowFilter(tuple(tests)), left


def _test_of(given: Filter, columns: Mapping[str, str] | None) -> Test | None:
    inner, is_negated = (given.child, True) if isinstance(given, Not) else (given, False)
    attribute = getattr(inner, "attribute", None)
    if attribute is None or len(attribute) != 1:
        return None
    column = attribute[0] if columns is None else columns.get(attribute[0])
    if column not in COLUMNS:
        return None
    kind = _KINDS.get(COLUMNS[column].arrow)
    if kind is None:
        return None
    match inner:
        case IsNull() | IsNotNull():
            fits = True
        case In(value=values):
            fits = all(value is None or type(value) is kind for value in values)
        case EqualNullSafe(value=value):
            fits = value is None or type(value) is kind
        case StringStartsWith() | StringEndsWith() | StringContains():
            fits = kind is str and type(inner.value) is str
        case _:
            fits = type(inner) in _COMPARED and type(getattr(inner, "value", None)) is kind
    return Test(column, inner, is_negated) if fits and _is_comparable(inner) else None


def _is_comparable(test: Filter) -> bool:
    """True if numbers are in the range of a column, and times have a zone."""
    for one in test.value if isinstance(test, In) else (getattr(test, "value", None),):
        if isinstance(one, datetime.datetime) and one.tzinfo is None:
            return False
        if isinstance(one, int) and not -(2**63) <= one < 2**63:
            return False
    return True


def _number(value: object) -> int:
    """A number, or a time in microseconds; 0 for a text."""
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MICROSECOND
    return value if isinstance(value, int) else 0


def _evaluated(test: Filter, values: pa.Array) -> pa.Array:
    kind = values.type
    match test:
        case IsNull():
            return pc.is_null(values)
        case IsNotNull():
            return pc.is_valid(values)
        case EqualNullSafe(value=None):
            return pc.is_null(values)
        case EqualNullSafe(value=value):
            return pc.fill_null(pc.equal(values, _scalar(value, kind)), False)
        case In(value=among):
            known = [value for value in among if value is not None]
            found = pa.repeat(False, len(values))
            if known:
                wide = pa.int64() if pa.types.is_integer(kind) else kind
                found = pc.is_in(values.cast(wide), value_set=pa.array(known, wide))
            # With null in the list, a value that is not in it is unknown.
            sure = pc.is_valid(values) if len(known) == len(among) else found
            return pc.if_else(pc.and_(pc.is_valid(values), sure), found, pa.scalar(None, pa.bool_()))
        case StringStartsWith() | StringEndsWith() | StringContains():
            return _MATCHED[type(test)](values, pattern=test.value)
    return _COMPARED[type(test)](values, _scalar(test.value, kind))  # type: ignore[attr-defined]


def _scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    # A filter may compare with a number that the column cannot have.
    return pa.scalar(value, pa.int64() if isinstance(value, int) else kind)
