"""Errors of a query: one sentence, with line and column."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.spark_job import MAX_SENTENCE, PipelineError, sentence_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"

_PARSED = re.compile(r"\(line (\d+), pos (\d+)\)")
_ANALYSED = re.compile(r"; line (\d+) pos (\d+)")
_RUN = re.compile(r"== SQL.* \(line (\d+), position (\d+)\) ==")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
_NAME = re.compile(r"`((?:[^`]|``)+)`")
_EXPRESSIONS = ("expression", "sqlExpr", "objectName")
_TAB = "\t"


class QueryError(PipelineError):
    """A query that cannot be answered. ``place`` is where that lies in its text, if that is known: line and column,
    from 1; ``pointed`` the line, and under it a caret."""

    def __init__(self, sentence: str, text: str = "", place: tuple[int, int] | None = None) -> None:
        self.place = place
        self.is_input_error = place is not None
        where = "" if place is None else f"line {place[0]}, column {place[1]}: "
        super().__init__(f"{where}{sentence}")
        self.pointed = "" if place is None else _pointed(text, place)


def query_error(error: BaseException, text: str) -> QueryError:
    """An error of Spark about a query."""
    return QueryError(_sentence(error), text, place_of(error, text))


@contextlib.contextmanager
def errors_of(text: str) -> Iterator[None]:
    """Raise Spark's errors about a query as QueryError."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark may not be installed
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise query_error(error, text) from None


def missing_table(error: BaseException) -> str | None:
    """The name of the table that Spark has not found, as the query has it; None if it is about something else."""
    if _condition(error) != TABLE_NOT_FOUND:
        return None
    parts = _NAME.findall(_parameters(error).get("relationName", ""))
    return parts[0].replace("``", "`") if len(parts) == 1 else None


def place_of(error: BaseException, text: str) -> tuple[int, int] | None:
    """Line and column, from 1."""
    message = str(error)
    if found := _PARSED.search(message) or _ANALYSED.search(message):
        place = int(found[1]), int(found[2]) + 1
    elif found := _RUN.search(message):
        place = int(found[1]), int(found[2])
    else:
        return _searched(error, text)
    # A place in the text of a view is none in the query.
    lines = text.splitlines() or [""]
    return place if place[0] <= len(lines) and place[1] <= len(lines[place[0] - 1]) + 1 else None


def _searched(error: BaseException, text: str) -> tuple[int, int] | None:
    """The place of what the error speaks of, if that is in the text only once."""
    for name in _EXPRESSIONS:
        spoken = _parameters(error).get(name, "").strip("`\"'")
        if spoken:
            found = list(re.finditer(rf"(?<!\w){re.escape(spoken)}(?!\w)", text, re.IGNORECASE))
            if len(found) == 1:
                before = text[: found[0].start()]
                return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return None


def _sentence(error: BaseException) -> str:
    if _condition(error) is None:
        return sentence_of(error)
    # A condition's sentences may go over several lines; the tree of the plan comes after all of them.
    message = _STATE.sub("", str(error))
    message = " ".join(re.sub(r"^\s*\[[A-Z0-9_.]+\]\s*", "", message).split())
    return message[:MAX_SENTENCE].rstrip(".") if "SQLSTATE" in str(error) else sentence_of(error)


def _condition(error: BaseException) -> str | None:
    ask = getattr(error, "getCondition", None)
    return None if ask is None else ask()


def _parameters(error: BaseException) -> dict[str, Any]:
    ask = getattr(error, "getMessageParameters", None)
    return (ask() or {}) if ask is not None else {}


def _pointed(text: str, place: tuple[int, int]) -> str:
    line = (text.splitlines() or [""])[place[0] - 1]
    # The same blanks and tabs, so that the caret is below the character whatever a tab is.
    under = "".join(_TAB if char == _TAB else " " for char in line[: place[1] - 1])
    return f"  {line}\n  {under}^"
