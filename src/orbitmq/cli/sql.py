"""``orbitmq sql``: questions to topics and archives in SQL, answered by Spark once, on and on, or at a prompt."""

import contextlib
import datetime
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.console import complain, many, parse_time
from orbitmq.cli.pipeline_options import Conf, DryRun, Master, job_errors, show
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, NameServers
from orbitmq.cli.spark_noise import spark_words_to
from orbitmq.cli.sql_answering import SHOWN_ROWS, Answering, Form, all_of, query_errors
from orbitmq.spark.pipelines.telling import Telling

if TYPE_CHECKING:
    from orbitmq.spark.pipelines.sql.stream import StreamOptions

SETTINGS = {
    # What a running query keeps on disk is of no use once it has ended.
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
}


def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="[QUERY]", help="The question; without one there is a prompt, or a script is read."),
    ] = None,
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    archive: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="An archive: topics are read from it up to its end, and live after that."),
    ] = None,
    archive_only: Annotated[
        bool, typer.Option("--archive-only", help="Read the archive and ask no broker.")
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS", help="Fields of JSON bodies, as in 'amount int, city string': the column value."
        ),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Run on: show the answer as messages come.")] = False,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="earliest|latest|TIME", help="Where a running query begins."),
    ] = "earliest",
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End a running query after that: 30s, 5m, 1h.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End a running query when it has read what was there at its start.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where a running query keeps how far it is, to go on there.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"Most rows that are shown; {SHOWN_ROWS} in a table, otherwise all.")
    ] = None,
    form: Annotated[
        Form, typer.Option("--format", help="How rows are given; parquet only with --to.")
    ] = Form.TABLE,
    to: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A new directory that Spark writes the answer to."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    spark_log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where what Spark itself says is kept; nowhere, otherwise.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Ask topics and archives in SQL.

    Each topic is a table of its name; `order-events` takes backticks. A row is a message. Its columns are topic,
    broker, queue_id, queue_offset, msg_id, unique_id, tags, keys, body, properties, born_timestamp,
    store_timestamp, born_host, store_host, sys_flag and reconsume_times.
    """
    if not stream and (once or lasting or checkpoint):
        raise typer.BadParameter("--once, --for and --checkpoint are for --stream")
    _check(stream=stream, dry_run=dry_run, query=query, form=form, to=to)
    with job_errors("nothing was changed"), query_errors():
        from orbitmq.spark.pipelines.running import settings_of, spark_job  # noqa: PLC0415 - help does without
        from orbitmq.spark.pipelines.sql.query import Queries  # noqa: PLC0415
        from orbitmq.spark.pipelines.sql.topics import TopicPlaces  # noqa: PLC0415

        settings = {**SETTINGS, **settings_of(conf or [])}
        places = TopicPlaces(nameserver, archive, archive_only=archive_only)
        # Before Spark is started for nothing.
        topics = places.names()
        telling = Telling()
        with contextlib.ExitStack() as stack:
            with spark_words_to(spark_log):
                spark = stack.enter_context(spark_job("sql", telling, master, settings))
            queries = stack.enter_context(Queries(spark, places, schema=schema, warn=complain))
            answering = Answering(spark, queries, places, telling, form, to, limit)
            if stream:
                answering.watch(query or "", _stream_options(begin, lasting, once, checkpoint, limit))
            elif dry_run:
                show(answering.would_read(query or ""), json=form is Form.JSON)
            elif query is not None:
                for statement in all_of(query):
                    answering.show(statement)
            else:
                _prompt(answering, topics)


def _check(*, stream: bool, dry_run: bool, query: str | None, form: Form, to: str | None) -> None:
    """Raises BadParameter for options that do not go together."""
    if (stream or dry_run) and query is None:
        raise typer.BadParameter("--stream and --dry-run are for one query: give it")
    if form is Form.PARQUET and to is None:
        raise typer.BadParameter("--format parquet is written with --to DIR")
    if to is not None and (form is Form.TABLE or stream or query is None):
        raise typer.BadParameter("--to DIR takes a query and --format csv, json or parquet, without --stream")


def _stream_options(
    begin: str, lasting: str | None, once: bool, checkpoint: str | None, limit: int | None
) -> "StreamOptions":
    from orbitmq.spark.options import duration  # noqa: PLC0415
    from orbitmq.spark.pipelines.sql.stream import StreamOptions  # noqa: PLC0415

    if begin not in {"earliest", "latest"}:
        begin = datetime.datetime.fromtimestamp(parse_time(begin) / 1000, datetime.UTC).isoformat()
    seconds = None if lasting is None else duration("--for", lasting)
    return StreamOptions(begin, once, seconds, checkpoint, limit or SHOWN_ROWS)


def _prompt(answering: Answering, topics: list[str]) -> None:
    from orbitmq.cli.sql_prompt import FIRST, Prompt  # noqa: PLC0415
    from orbitmq.spark.columns import COLUMNS  # noqa: PLC0415

    is_interactive = sys.stdin.isatty()
    if is_interactive:
        typer.echo(f"{many(len(topics), 'topic')}; 'help' helps, 'quit' leaves: {FIRST.strip()} …;", err=True)
    # A script that has a mistake ends there; people are told, and try again.
    ask = answering.ask if is_interactive else answering.show
    Prompt(ask=ask, show_topics=answering.show_topics, words=[*topics, *COLUMNS]).run()
