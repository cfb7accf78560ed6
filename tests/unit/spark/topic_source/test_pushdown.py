"""Filters that are taken over: what they keep, what they say beforehand, and what is left to Spark."""

from __future__ import annotations

import datetime
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
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

from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message.record import encode_record
from orbitmq.spark.records.records import Records
from orbitmq.spark.topic_source.pushdown import RowFilter, compile_filters

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = host_bytes("127.0.0.1:10911")
TAGS = ("a", None, "b", "ab", None, "ü")


def record(number: int) -> bytes:
    tag = TAGS[number % len(TAGS)]
    return encode_record(
        topic=b"t",
        queue_id=number % 3,
        body=b"body",
        properties=b"" if tag is None else b"TAGS\x01" + tag.encode() + b"\x02",
        queue_offset=number,
        physical_offset=number * 100,
        born_timestamp=2000 - number,
        store_timestamp=1000 + number,
        born_host=HOST,
        store_host=HOST,
    )


RECORDS = Records.of(b"".join(map(record, range(12))))


def at(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


def kept(*filters: Filter) -> list[int]:
    row_filter, left = compile_filters(filters)
    assert left == []
    mask = row_filter.mask(RECORDS, broker="broker-a", topic="t")
    assert mask is not None
    assert mask.dtype == np.bool_
    return [number for number, is_kept in enumerate(mask.tolist()) if is_kept]


def those(wanted: Callable[[int], Any]) -> list[int]:
    return [number for number in range(12) if wanted(number)]


def tag_of(number: int) -> str | None:
    return TAGS[number % len(TAGS)]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (EqualTo(("queue_id",), 1), lambda n: n % 3 == 1),
        (EqualTo(("queue_id",), 2**40), lambda n: False),
        (In(("queue_id",), (0, 2, 2**40)), lambda n: n % 3 != 1),
        (Not(In(("queue_id",), (0, 2))), lambda n: n % 3 == 1),
        (GreaterThan(("queue_offset",), 4), lambda n: n > 4),
        (GreaterThanOrEqual(("queue_offset",), 4), lambda n: n >= 4),
        (LessThan(("queue_offset",), 4), lambda n: n < 4),
        (LessThanOrEqual(("queue_offset",), 4), lambda n: n <= 4),
        (Not(LessThan(("queue_offset",), 4)), lambda n: n >= 4),
        (GreaterThan(("store_timestamp",), at(1005)), lambda n: n > 5),
        (LessThanOrEqual(("store_timestamp",), at(1005)), lambda n: n <= 5),
        (EqualTo(("born_timestamp",), at(1998)), lambda n: n == 2),
        (EqualTo(("topic",), "t"), lambda n: True),
        (EqualTo(("topic",), "u"), lambda n: False),
        (StringStartsWith(("broker",), "broker"), lambda n: True),
        (IsNotNull(("topic",)), lambda n: True),
        (EqualTo(("tags",), "a"), lambda n: tag_of(n) == "a"),
        (Not(EqualTo(("tags",), "a")), lambda n: tag_of(n) not in {"a", None}),
        (EqualNullSafe(("tags",), None), lambda n: tag_of(n) is None),
        (Not(EqualNullSafe(("tags",), "a")), lambda n: tag_of(n) != "a"),
        (In(("tags",), ("a", "ü", None)), lambda n: tag_of(n) in {"a", "ü"}),
        (Not(In(("tags",), ("a", "b"))), lambda n: tag_of(n) in {"ab", "ü"}),
        (Not(In(("tags",), ("a", None))), lambda n: False),
        (In(("tags",), ()), lambda n: False),
        (In(("tags",), (None,)), lambda n: False),
        (IsNull(("tags",)), lambda n: tag_of(n) is None),
        (Not(IsNull(("tags",))), lambda n: tag_of(n) is not None),
        (StringStartsWith(("tags",), "a"), lambda n: tag_of(n) in {"a", "ab"}),
        (StringEndsWith(("tags",), "b"), lambda n: tag_of(n) in {"b", "ab"}),
        (Not(StringContains(("tags",), "b")), lambda n: tag_of(n) in {"a", "ü"}),
        (GreaterThan(("tags",), "a"), lambda n: (tag_of(n) or "") > "a"),
        (EqualTo(("sys_flag",), 0), lambda n: True),
        (EqualTo(("unique_id",), "x"), lambda n: False),
    ],
)  # fmt: skip
def test_a_filter_keeps_what_sql_would_keep(given: Filter, wanted: Callable[[int], Any]) -> None:
    assert kept(given) == those(wanted)


def test_all_filters_have_to_hold() -> None:
    assert kept(GreaterThan(("queue_offset",), 2), EqualTo(("queue_id",), 0), LessThan(("queue_offset",), 9)) == [
        3,
        6,
    ]


def test_without_filters_everything_is_kept() -> None:
    assert RowFilter().mask(RECORDS, broker=None) is None
    assert not RowFilter()


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("body",), b"x"),
        EqualTo(("keys",), "x"),
        IsNotNull(("properties",)),
        EqualTo(("no_such_column",), 1),
        EqualTo(("topic", "inner"), "x"),
        EqualTo(("queue_id",), "1"),
        EqualTo(("queue_id",), True),
        EqualTo(("queue_offset",), 2**70),
        GreaterThan(("store_timestamp",), datetime.datetime(2026, 1, 1)),
        In(("queue_id",), (1, "2")),
        Filter(),
    ],
)
def test_what_cannot_be_compared_here_is_left_to_spark(given: Filter) -> None:
    row_filter, left = compile_filters([given])
    assert left[0] is given
    assert not row_filter


def test_columns_may_have_other_names_in_a_query() -> None:
    filters = [EqualTo(("_queue_id",), 1), EqualTo(("queue_id",), 2), EqualTo(("amount",), 3)]
    row_filter, left = compile_filters(filters, {"_queue_id": "queue_id"})
    assert str(row_filter) == "queue_id EqualTo 1"
    assert left == filters[1:]


def test_ranges_are_reported_beforehand() -> None:
    row_filter, _ = compile_filters(
        [
            GreaterThan(("queue_offset",), 4),
            GreaterThanOrEqual(("queue_offset",), 3),
            LessThan(("queue_offset",), 9),
            Not(EqualTo(("queue_offset",), 6)),
            LessThanOrEqual(("store_timestamp",), at(1005)),
        ]
    )
    assert row_filter.span("queue_offset") == (5, 8)
    assert row_filter.span("store_timestamp") == (None, 1_005_000)
    assert row_filter.span("born_timestamp") == (None, None)


def test_a_choice_of_numbers_is_a_range_as_well() -> None:
    assert compile_filters([In(("queue_offset",), (7, 3, 5))])[0].span("queue_offset") == (3, 7)
    low, high = compile_filters([In(("queue_offset",), ())])[0].span("queue_offset")
    assert low is not None
    assert high is not None
    assert low > high


def test_tags_are_reported_beforehand() -> None:
    row_filter, _ = compile_filters([In(("tags",), ("a", "b", None)), Not(EqualTo(("tags",), "c"))])
    assert row_filter.choice("tags") == frozenset("ab")
    both, _ = compile_filters([In(("tags",), ("a", "b")), EqualTo(("tags",), "c")])
    assert both.choice("tags") == frozenset()
    assert compile_filters([StringStartsWith(("tags",), "a")])[0].choice("tags") is None


def test_a_queue_is_judged_by_its_names() -> None:
    row_filter, _ = compile_filters([In(("queue_id",), (1, 2)), StringStartsWith(("topic",), "ord")])
    assert row_filter.allows("queue_id", 2)
    assert not row_filter.allows("queue_id", 3)
    assert row_filter.allows("topic", "orders")
    assert not row_filter.allows("topic", "bills")
    assert row_filter.allows("broker", None)
    assert str(row_filter.without("queue_id")) == "topic StringStartsWith 'ord'"


def test_a_filter_travels_to_other_processes() -> None:
    row_filter, _ = compile_filters([EqualTo(("tags",), "a"), IsNotNull(("tags",))])
    assert pickle.loads(pickle.dumps(row_filter)) == row_filter


def test_a_column_is_read_once_for_all_its_filters() -> None:
    row_filter, _ = compile_filters([IsNotNull(("tags",)), EqualTo(("tags",), "a")])
    mask = row_filter.mask(RECORDS, broker=None)
    assert mask is not None
    assert pa.array(mask).true_count == 2
