"""Queries as text: where statements end, where mistakes are, what plans read, and how rows are printed."""

from __future__ import annotations

import datetime
import decimal
import io
import sys
from typing import Any

import pytest
from rich.console import Console

from orbitmq.cli.sql.output import bytes_text, plain, print_csv, print_json_rows, print_table
from orbitmq.cli.sql.prompt import Prompt
from orbitmq.cli.sql.split_statements import statements
from orbitmq.spark.pipelines.sql.errors import QueryError, missing_table, query_error
from orbitmq.spark.pipelines.sql.plan import columns_read
from peers.ports import free_port
from support.cli.command import run
from support.spark.topics import close_clusters

# Statements


@pytest.mark.parametrize(
    ("text", "ready", "rest"),
    [
        ("select 1", [], "select 1"),
        ("select 1;", ["select 1"], ""),
        ("select 1; select 2;\n", ["select 1", "select 2"], ""),
        ("select ';' -- not; here\n, 2; rest", ["select ';' -- not; here\n, 2"], " rest"),
        ("select 'it''s;' ; x", ["select 'it''s;'"], " x"),
        (r"select 'a\';b'; x", [r"select 'a\';b'"], " x"),
        ("select * from `a;b`;", ["select * from `a;b`"], ""),
        ("select 'open; still", [], "select 'open; still"),
        ("/* a; b */ select 1 - 2 / 3;", ["/* a; b */ select 1 - 2 / 3"], ""),
        (";; -- nothing\n;", [], ""),
    ],
)
def test_a_statement_ends_at_a_semicolon_that_is_one(text: str, ready: list[str], rest: str) -> None:
    assert statements(text) == (ready, rest)


# Mistakes


class WrongError(Exception):
    """An exception as Spark raises it."""

    def __init__(self, text: str, condition: str, **parameters: str) -> None:
        super().__init__(text)
        self._condition = condition
        self._parameters = parameters

    def getCondition(self) -> str:  # noqa: N802
        return self._condition

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        return self._parameters


def test_a_sentence_that_spark_cannot_read_is_pointed_at() -> None:
    message = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'orders': extra input 'orders'. SQLSTATE: 42601 "
        "(line 2, pos 7)\n\n== SQL ==\n…"
    )
    error = query_error(WrongError(message, "PARSE_SYNTAX_ERROR"), "select *\n\tform  orders")
    assert str(error) == "line 2, column 8: Syntax error at or near 'orders': extra input 'orders'"
    assert error.pointed == "  \tform  orders\n  \t      ^"


def test_an_unknown_column_is_pointed_at_and_others_are_proposed() -> None:
    message = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `tag` cannot be resolved. Did you mean one of the "
        "following? [`tags`, `body`]. SQLSTATE: 42703; line 1 pos 7;\n'Aggregate [tags#7]\n+- Relation"
    )
    error = query_error(WrongError(message, "UNRESOLVED_COLUMN.WITH_SUGGESTION"), "select tag from orders")
    assert str(error) == (
        "line 1, column 8: A column with name `tag` cannot be resolved. Did you mean one of the following? "
        "[`tags`, `body`]"
    )
    assert error.pointed.endswith("\n         ^")


def test_an_expression_that_is_named_is_found_in_the_text() -> None:
    message = (
        '[MISSING_AGGREGATION] The expression "queue_id" is not aggregated.\nAdd it. SQLSTATE: 42803;\nAggregate'
    )
    wrong = WrongError(message, "MISSING_AGGREGATION", expression='"queue_id"')
    error = query_error(wrong, "select tags,\n queue_id from orders group by tags")
    assert (error.place, str(error)) == (
        (2, 2),
        'line 2, column 2: The expression "queue_id" is not aggregated. Add it',
    )
    assert query_error(wrong, "select queue_id, queue_id").place is None


def test_what_goes_wrong_while_it_runs_is_pointed_at() -> None:
    message = (
        "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 8) ==\nselect 1/0\n       ^^^"
    )
    assert query_error(WrongError(message, "DIVIDE_BY_ZERO"), "select 1/0").place == (1, 8)


def test_a_place_outside_the_text_is_none() -> None:
    message = "[X] In a view. SQLSTATE: 1; line 7 pos 3;\n"
    assert query_error(WrongError(message, "X"), "select 1").place is None
    assert str(QueryError("no place")) == "no place"


def test_the_missing_table_is_reported_from_other_mistakes() -> None:
    name = "TABLE_OR_VIEW_NOT_FOUND"
    assert missing_table(WrongError("", name, relationName="`a-``b`")) == "a-`b"
    assert missing_table(WrongError("", name, relationName="`default`.`orders`")) is None
    assert missing_table(WrongError("", "OTHER", relationName="`orders`")) is None
    assert missing_table(ValueError()) is None


# Plans


PLAN = """\
(1) Scan parquet\x20
Output [3]: [tags#7, keys#8, store_timestamp#12]
Location: InMemoryFileIndex [file:/tmp/x/0]
PushedFilters: [IsNotNull(keys)]
ReadSchema: struct<tags:string,properties:map<string,string>,price:decimal(10,2),keys:array<struct<a:int,b:int>>>

(8) Scan parquet\x20
Location: InMemoryFileIndex [file:/tmp/x/0]
ReadSchema: struct<>

(9) Scan parquet\x20
Location: InMemoryFileIndex [file:/tmp/x/1]
ReadSchema: struct<body:binary>
"""


def test_a_plan_says_which_columns_each_scan_reads() -> None:
    assert columns_read(PLAN) == {
        "file:/tmp/x/0": [frozenset({"tags", "properties", "price", "keys"}), frozenset()],
        "file:/tmp/x/1": [frozenset({"body"})],
    }
    assert columns_read("== Physical Plan ==\nLocalTableScan") == {}


def test_a_plan_that_does_not_say_it_of_every_scan_says_nothing() -> None:
    assert columns_read(PLAN.replace("ReadSchema: struct<>\n", "")) is None
    assert columns_read(PLAN.replace("ReadSchema: struct<>", "ReadSchema: struct<a:in...")) is None
    assert columns_read("ReadSchema: struct<a:int>") is None


# Rows


ROW: tuple[Any, ...] = ("paid, [late]", 3, b"\xff", None, {"a": [1]}, decimal.Decimal("1.50"))
NAMES = ["tags", "n", "body", "nothing", "nested", "price"]


def test_people_see_a_table() -> None:
    out = io.StringIO()
    types = ["string", "bigint", "binary", "string", "map<string,array<int>>", "decimal(3,2)"]
    print_table(Console(file=out, width=120), NAMES, types, [ROW], has_more=True, took="1.0 s")
    lines = out.getvalue().splitlines()
    assert [cell.strip() for cell in lines[3].split("│")[1:-1]] == [
        *("paid, [late]", "3", "base64:/w==", "null", '{"a":[1]}', "1.50")
    ]
    assert lines[-1] == "the first 1 row; --limit shows more in 1.0 s"


def test_machines_read_json_and_csv(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert print_json_rows(NAMES, [ROW, ROW]) == 2
    sys.stdout.flush()
    line = b'{"tags":"paid, [late]","n":3,"body":"base64:/w==","nothing":null,"nested":{"a":[1]},"price":"1.50"}\n'
    assert capfdbinary.readouterr().out == 2 * line
    assert print_csv(NAMES, [ROW]) == 1
    assert capfdbinary.readouterr().out.decode() == (
        'tags,n,body,nothing,nested,price\n"paid, [late]",3,base64:/w==,,"{""a"":[1]}",1.50\n'
    )
    assert print_csv(NAMES, []) == 0
    assert capfdbinary.readouterr().out == b"tags,n,body,nothing,nested,price\n"


def test_values_of_spark_become_plain() -> None:
    assert plain(float("nan")) is None
    assert plain([bytearray(b"text"), True]) == ["text", True]
    moment = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    assert datetime.datetime.fromisoformat(plain(moment.astimezone().replace(tzinfo=None))) == moment
    assert plain({1: datetime.date(2026, 1, 31)}) == {"1": "2026-01-31"}


# The prompt


def test_a_script_is_requested_statement_by_statement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\nhelp\n\\d\nselect 1,\n 2; select ';\n';\nselect 3\n"))
    requests: list[str] = []
    Prompt(ask=requests.append, show_topics=lambda: requests.append("topics"), words=[]).run()
    assert requests == ["topics", "select 1,\n 2", "select ';\n'", "select 3"]
    assert "describe TOPIC" in capsys.readouterr().out


def test_a_script_ends_at_quit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("select 1;\nquit;\nselect 2;\n"))
    requests: list[str] = []
    Prompt(ask=requests.append, show_topics=lambda: None, words=[]).run()
    assert requests == ["select 1"]


def test_names_are_completed() -> None:
    prompt = Prompt(ask=lambda _: None, show_topics=lambda: None, words=["orders", "other", "tags"])
    assert [prompt._completed("o", state) for state in range(3)] == ["orders", "other", None]


# The command, as far as it goes without Spark


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--stream",), "need a query"),
        (("select 1", "--once"), "are for --stream"),
        (("select 1", "--format", "parquet"), "--format parquet needs --to DIR"),
        (("select 1", "--to", "x"), "--to DIR needs a query and --format"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...], message: str) -> None:
    ran = run("sql", *arguments)
    assert ran.code == 2
    assert message in " ".join(ran.err.replace("│", " ").split())


def test_what_cannot_be_reached_is_reported_before_spark_starts(tmp_path: Any) -> None:
    try:
        ran = run("sql", "select 1", "--nameserver", f"127.0.0.1:{free_port()}")
    finally:
        # A process leaves its clusters when it ends; this one goes on.
        close_clusters()
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    ran = run("sql", "select 1", "--archive", tmp_path)
    assert ran.code == 1
    assert "there is no archive at" in ran.err
    ran = run("sql", "select 1", "--conf", "shuffle=2")
    assert ran.err == "orbitmq: 'shuffle=2' is not a setting of Spark: write spark.name=value\n"


def test_bytes_that_are_not_text_are_marked() -> None:
    assert bytes_text("grüezi".encode()) == "grüezi"
    assert bytes_text(b"\xff") == "base64:/w=="
    # Text that looks like the mark is not mistaken for it.
    assert bytes_text(b"base64:/w==") == "base64:YmFzZTY0Oi93PT0="
