"""SQL92 expressions mean what they mean to RocketMQ.

``tests/data/filter/sql.jsonl.gz``, made with the classes of Apache RocketMQ 5.5.0: on the first line the properties
of some messages, then expressions, each with one letter a message (``t`` true, ``f`` false, ``n`` null, ``e`` an
exception) or with null if it does not compile.
"""

from __future__ import annotations

import gzip
import json
import sys

import pytest

from orbitmq.filter import FilterEvaluationError, FilterSyntaxError, SqlSelector, compile_sql
from orbitmq.filter.parsing import MAX_DEPTH
from orbitmq.filter.sql import MAX_LENGTH, _cache
from orbitmq.filter.tokens import MAX_TOKENS
from orbitmq.protocol.message.properties import encode
from support import paths

DATA = str(paths.DATA / "filter" / "sql.jsonl.gz")


def apache_evaluations() -> tuple[list[dict[str, str]], list[tuple[str, str | None]]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        messages: list[dict[str, str]] = json.loads(next(file))["properties"]
        rows = [json.loads(line) for line in file]
    return messages, [(row["expression"], row["results"]) for row in rows]


MESSAGES, EVALUATIONS = apache_evaluations()
LETTERS = {True: "t", False: "f", None: "n"}


def letter(selector: SqlSelector, properties: dict[str, str]) -> str:
    try:
        return LETTERS[selector.evaluate(properties)]
    except FilterEvaluationError:
        return "e"


def test_what_rocketmq_refuses_is_refused_with_a_position() -> None:
    refused = [expression for expression, results in EVALUATIONS if results is None]
    assert len(refused) > 4000
    for expression in refused:
        with pytest.raises(FilterSyntaxError) as caught:
            compile_sql(expression)
        lines = expression.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert 1 <= caught.value.line <= len(lines)
        assert 1 <= caught.value.column <= len(lines[caught.value.line - 1]) + 1
        assert "\n" not in str(caught.value)


def test_what_rocketmq_takes_evaluates_as_it_does_there() -> None:
    taken = [(expression, results) for expression, results in EVALUATIONS if results is not None]
    assert len(taken) > 6000
    for expression, results in taken:
        selector = compile_sql(expression)
        assert "".join([letter(selector, message) for message in MESSAGES]) == results, expression


def test_only_true_matches_and_raw_properties_match_as_parsed_ones() -> None:
    # A property with an empty value is in no record.
    messages = [(index, message) for index, message in enumerate(MESSAGES) if all(message.values())]
    raw = {index: encode(message) for index, message in messages}
    for expression, results in EVALUATIONS:
        if results is None:
            continue
        selector = compile_sql(expression)
        for index, message in messages:
            wanted = results[index] == "t"
            assert selector.matches(message) is wanted
            assert selector.matches_raw(raw[index]) is wanted


@pytest.mark.parametrize(
    ("expression", "line", "column", "reason"),
    [
        ("", 1, 1, "a property or a value is expected instead of the end"),
        ("a >", 1, 4, "a property or a value is expected instead of the end"),
        ("a > > 3", 1, 5, "a property or a value is expected instead of '>'"),
        ("a > 1 AND\r\n  b = ^", 2, 7, "'^' is no part of an expression"),
        ("a = 1\rOR b = 'x", 2, 8, "the string is not closed"),
        ("a = 1 /* b", 1, 7, "the comment is not closed"),
        ("(a = 1", 1, 7, "')' is expected instead of the end"),
        ("a IN (5)", 1, 7, "a string is expected instead of '5'"),
        ("a IN", 1, 5, "'(' is expected instead of the end"),
        ("a BETWEEN 1 OR 2", 1, 13, "AND is expected instead of 'OR'"),
        ("a IS 5", 1, 6, "NULL is expected instead of '5'"),
        ("a NOT 5", 1, 7, "'5' is not expected here"),
        ("a > 'x'", 1, 5, "only numbers and properties can be compared by size"),
        ("a = NULL", 1, 5, "NULL is never equal to anything: write IS NULL or IS NOT NULL"),
        ("TRUE = 5", 1, 8, "TRUE and FALSE cannot be compared with a number or a string"),
        ("a BETWEEN 5 AND 1", 1, 11, "the lower bound of BETWEEN is above the upper one"),
        ("'x' IN ('x')", 1, 5, "IN is only possible for a property"),
        ("a = 9223372036854775808", 1, 5, "the number does not fit into 64 bits"),
        ("a > 0.0", 1, 5, "the number is out of the range of positive doubles"),
        ("a = 1 AND 5", 1, 11, "a condition is expected instead of a value"),
    ],
)
def test_the_error_says_what_is_wrong_and_where(expression: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        compile_sql(expression)
    assert (caught.value.line, caught.value.column, caught.value.reason) == (line, column, reason)
    assert str(caught.value) == f"{reason}, at line {line}, column {column}"


def test_a_long_string_is_shortened_in_the_error() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        compile_sql(f"a IN '{'x' * 1000}'")
    assert len(str(caught.value)) < 100


def test_an_expression_ends_where_it_cannot_go_on() -> None:
    assert compile_sql("a = 1 whatever '''").matches({"a": "1"})
    assert compile_sql("a = 1 ) ###").matches({"a": "1"})
    with pytest.raises(FilterSyntaxError):
        compile_sql("a = 1 ###")


def test_not_binds_tighter_than_a_comparison() -> None:
    properties = {"a": "5"}
    assert compile_sql("NOT (a = 6)").matches(properties)
    # (NOT a) is true of any string, and a condition is never equal to a number.
    assert not compile_sql("NOT a = 6").matches(properties)


def test_an_operand_that_is_not_asked_cannot_fail() -> None:
    properties = {"a": "red", "b": "x"}
    assert compile_sql("b = 'x' OR a > 5").matches(properties)
    assert not compile_sql("a > 5 OR b = 'x'").matches(properties)
    assert compile_sql("b = 'y' AND a > 5").evaluate(properties) is False
    with pytest.raises(FilterEvaluationError, match="'red' is not an integer"):
        compile_sql("a > 5 AND b = 'y'").evaluate(properties)


def test_a_property_is_fetched_under_its_exact_name_and_the_last_one_counts() -> None:
    selector = compile_sql("a = 'x'")
    assert selector.names == ("a",)
    assert selector.matches_raw(b"a\x01y\x02a\x01x\x02")
    assert not selector.matches_raw(b"a\x01x\x02a\x01y\x02")
    assert selector.matches_raw(b"a\x01x\x02a\x01\x02")
    assert not selector.matches_raw(b"A\x01x\x02aa\x01x\x02")
    assert selector.matches_raw(b"b\x01y\x02a\x01x")


def test_a_selector_names_each_property_once() -> None:
    assert compile_sql("a > 1 AND b > 2 OR a < 0 AND c IS NULL").names == ("a", "b", "c")


def test_many_properties_are_found_in_one_reading() -> None:
    names = [f"p{number}" for number in range(10)]
    selector = compile_sql(" AND ".join(f"{name} = '{name}'" for name in names))
    properties = {name: name for name in names}
    assert selector.matches_raw(encode(properties))
    assert not selector.matches_raw(encode({**properties, "p9": "x"}))


def test_damaged_bytes_in_a_property_read_as_in_java() -> None:
    raw = b"a\x01\xed\xa0\x80\xff\x02"
    assert compile_sql("a = '\ufffd\ufffd'").matches_raw(raw)
    assert not compile_sql("a = '\ud800'").matches_raw(raw)


def test_an_expression_is_compiled_once_be_it_right_or_wrong() -> None:
    assert compile_sql("a = 'compiled once'") is compile_sql("a = 'compiled once'")
    wrong = "a = 'wrong once' AND"
    before = len(_cache)
    for _ in range(3):
        with pytest.raises(FilterSyntaxError):
            compile_sql(wrong)
    assert len(_cache) == before + 1
    assert _cache.get(None, wrong) is not None


NESTED = {
    "parentheses": "(" * MAX_LENGTH,
    "minus signs": "a = " + "-" * (MAX_LENGTH - 4),
    "minus signs before a number": "a = " + "- " * 5000 + "5",
    "negations": "NOT " * 2000 + "a",
    "IS NULL": "a" + " IS NULL" * 2000,
    "equations": "a = 1" + " = TRUE" * 1000,
    "searches": "a" + " CONTAINS 'x'" * 1000,
    "ORs of ANDs": "(a = 1 AND (a = 2 OR " * 500 + "a = 3" + "))" * 500,
    "conditions": " OR ".join(["a = 1"] * MAX_TOKENS),
    "comments": "/**/" * (MAX_LENGTH // 4),
    "stars": "/" + "*" * (MAX_LENGTH - 1),
    "quotes": "'" * (MAX_LENGTH - 1),
    "characters": "a = 1" + " " * MAX_LENGTH,
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_what_is_too_deep_or_too_long_is_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError):
        compile_sql(text)


def test_what_is_as_deep_and_as_long_as_allowed_evaluates() -> None:
    deep = compile_sql("NOT " * MAX_DEPTH + "a")
    assert deep.evaluate({"a": "x"}) is False
    parentheses = (MAX_TOKENS - 3) // 2
    assert compile_sql("(" * parentheses + "a = 1" + ")" * parentheses).matches({"a": "1"})
    chain = compile_sql(" OR ".join(f"a = {number}" for number in range(MAX_TOKENS // 4)))
    assert chain.matches({"a": "500"})
    assert sys.getrecursionlimit() >= 5 * MAX_DEPTH


def test_an_expression_too_long_is_not_kept() -> None:
    kept = len(_cache)
    with pytest.raises(FilterSyntaxError, match="longer than"):
        compile_sql("a" * (MAX_LENGTH + 1))
    assert len(_cache) == kept
