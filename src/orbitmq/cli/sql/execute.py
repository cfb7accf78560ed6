"""Execution of the queries of ``orbitmq sql`` and output of their rows: a table, CSV, JSON or files."""

import contextlib
import enum
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from orbitmq.cli.output import complain, for_people, many, safe
from orbitmq.cli.sql.split_statements import statements
from orbitmq.spark.pipelines.progress import JobProgress, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.sql.query import Queries
    from orbitmq.spark.pipelines.sql.stream import StreamOptions
    from orbitmq.spark.pipelines.sql.topics import TopicPlaces

DEFAULT_ROWS = 100


class OutputFormat(enum.StrEnum):
    """The format of a result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


class QueryOutput:
    """Runs the queries of a session and prints their results in one format."""

    def __init__(
        self,
        spark: "SparkSession",
        queries: "Queries",
        places: "TopicPlaces",
        progress: JobProgress,
        form: OutputFormat,
        to: str | None,
        limit: int | None,
    ) -> None:
        self._spark = spark
        self._queries = queries
        self._places = places
        self._progress = progress
        self._form = form
        self._to = to
        self._limit = limit

    def show(self, text: str) -> None:
        """Run a query and print its rows. Raises QueryError, and OrbitMQError."""
        from orbitmq.cli.sql.cancellable import run_interruptibly  # noqa: PLC0415
        from orbitmq.cli.sql.output import print_csv, print_json_rows, print_table  # noqa: PLC0415
        from orbitmq.spark.pipelines.sql.errors import errors_of  # noqa: PLC0415

        began = time.monotonic()
        answer = self._queries.answer(text)
        with errors_of(text):
            if self._to is not None:
                run_interruptibly(self._spark, self._progress, "the query runs", lambda: self._write(answer))
                self._progress.say(f"written to {self._to} in {_took(began)}")
            elif self._form is OutputFormat.TABLE:
                most = self._limit or DEFAULT_ROWS
                rows = run_interruptibly(
                    self._spark, self._progress, "the query runs", lambda: answer.limit(most + 1).collect()
                )
                types = [kind for _, kind in answer.dtypes]
                has_more = len(rows) > most
                console = for_people()
                print_table(console, answer.columns, types, rows[:most], has_more=has_more, took=_took(began))
            else:
                write = print_csv if self._form is OutputFormat.CSV else print_json_rows
                wanted = answer if self._limit is None else answer.limit(self._limit)
                count = run_interruptibly(
                    self._spark,
                    self._progress,
                    "the query runs",
                    lambda: write(answer.columns, wanted.toLocalIterator(prefetchPartitions=True)),
                )
                self._progress.say(f"{many(count, 'row')} in {_took(began)}")

    def _write(self, answer: "DataFrame") -> None:
        wanted = answer if self._limit is None else answer.limit(self._limit)
        assert self._to is not None
        options = {"header": "true"} if self._form is OutputFormat.CSV else {}
        wanted.write.format(self._form.value).options(**options).save(self._to)

    def would_read(self, text: str) -> Summary:
        """The topics and columns that a query would read."""
        facts: dict[str, Any] = {}
        for use in self._queries.uses(text)[0]:
            files = [] if use.moment is None else use.moment.archived_files([use.seam.topic])
            facts[use.seam.topic] = {
                "archived messages": sum(file.rows for file in files),
                "archived files": len(files),
                "live messages": use.seam.live_messages,
                "columns": ", ".join(use.columns),
            }
        return Summary("The query would read", facts)

    def watch(self, text: str, options: "StreamOptions") -> None:
        """Run a query continuously, until its end or Ctrl-C."""
        from orbitmq.cli.sql.live_view import watch  # noqa: PLC0415
        from orbitmq.spark.pipelines.sql.stream import RunningQuery  # noqa: PLC0415

        statement = all_of(text)
        if len(statement) != 1:
            raise typer.BadParameter("--stream runs one query")
        with self._progress.step("the query starts"):
            running = RunningQuery(self._spark, self._queries, self._places, statement[0], options, complain)
        watch(running, self._progress, as_json=self._form is OutputFormat.JSON)

    def show_topics(self) -> None:
        """Print the topics with their numbers of messages."""
        table = Table()
        table.add_column("topic")
        table.add_column("archived", justify="right")
        table.add_column("live", justify="right")
        for topic in self._places.names():
            seam, moment = self._places.look(topic)
            archived = 0 if moment is None else sum(file.rows for file in moment.archived_files([topic]))
            table.add_row(safe(topic), f"{archived:,}" if moment is not None else "—", f"{seam.live_messages:,}")
        for_people().print(table)

    def ask(self, text: str) -> None:
        """Run a statement of the prompt; an error is printed, and the next statement may follow."""
        from orbitmq.client.errors import OrbitMQError  # noqa: PLC0415
        from orbitmq.spark.pipelines.sql.errors import QueryError  # noqa: PLC0415

        try:
            self.show(text)
        except QueryError as error:
            _print_error(error)
        except OrbitMQError as error:
            complain(str(error))
        except KeyboardInterrupt:
            complain("the query was stopped")


@contextlib.contextmanager
def query_errors() -> Iterator[None]:
    """A wrong query is a sentence with the place, and the line of the query with a caret under the place."""
    from orbitmq.spark.pipelines.sql.errors import QueryError  # noqa: PLC0415

    try:
        yield
    except QueryError as error:
        _print_error(error)
        raise typer.Exit(1) from None


def _print_error(error: Any) -> None:
    complain(str(error))
    if error.pointed:
        typer.echo(error.pointed, err=True)


def all_of(query: str) -> list[str]:
    """The statements of a script; the last one needs no semicolon."""
    ready, rest = statements(query)
    return [*ready, rest.strip()] if rest.strip() else ready


def _took(began: float) -> str:
    return f"{time.monotonic() - began:,.1f} s"
