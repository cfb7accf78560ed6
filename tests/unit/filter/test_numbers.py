"""Numbers in property values are read as Java reads them.

``tests/data/filter/numbers.jsonl.gz``: texts, and what ``Integer.valueOf``, ``Long.valueOf``, ``Double.valueOf``
(its bits in hexadecimal) and ``Boolean.valueOf`` of Java 17 made of them; null where they threw.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.filter import FilterEvaluationError, compile_sql
from orbitmq.filter.numbers import compare_doubles, parse_double, parse_int, parse_long
from support import paths

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = str(paths.DATA / "filter" / "numbers.jsonl.gz")


def java_readings() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def reading(parse: Callable[[str], float], text: str) -> float | None:
    try:
        return parse(text)
    except FilterEvaluationError:
        return None


def bits(number: float | None) -> str | None:
    if number is None:
        return None
    if math.isnan(number):
        return "7ff8000000000000"
    return f"{struct.unpack('>Q', struct.pack('>d', number))[0]:x}"


def test_every_text_reads_as_in_java() -> None:
    rows = java_readings()
    assert len(rows) > 500
    for row in rows:
        text = row["text"]
        assert reading(parse_int, text) == row["int"], text
        assert reading(parse_long, text) == row["long"], text
        assert bits(reading(parse_double, text)) == row["double"], text


def test_a_property_is_true_where_java_says_so() -> None:
    selector = compile_sql("a = TRUE")
    for row in java_readings():
        assert selector.matches({"a": row["text"]}) is row["boolean"], row["text"]


def test_java_s_order_of_doubles_is_total() -> None:
    ascending = [-math.inf, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]
    for i, left in enumerate(ascending):
        for j, right in enumerate(ascending):
            order = compare_doubles(left, right)
            assert (order > 0) - (order < 0) == (i > j) - (i < j), (left, right)


@pytest.mark.parametrize("parse", [parse_int, parse_long, parse_double])
def test_what_is_no_number_is_named_in_the_error(parse: Callable[[str], float]) -> None:
    with pytest.raises(FilterEvaluationError, match="'red' is not a"):
        parse("red")


@pytest.mark.parametrize(
    "text", ["1" * 32_000 + "x", "1." + "1" * 32_000 + "x", "." + "1" * 32_000 + "e" + "1" * 400 + "x"]
)
def test_a_long_value_that_is_no_number_is_refused_in_linear_time(text: str) -> None:
    # Quadratic, this took 40 seconds for one message and one filter.
    with pytest.raises(FilterEvaluationError):
        parse_double(text)
