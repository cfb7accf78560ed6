"""``orbitmq sql``: SQL over topics and archives by Spark, as a query, a running query or at a prompt."""

import contextlib
import dataclasses
import datetime
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers
from orbitmq.cli.option_groups import option_groups
from orbitmq.cli.output import complain, many
from orbitmq.cli.pipeline.options import Conf, DryRun, Master, job_errors, show
from orbitmq.cli.sql.execute import DEFAULT_ROWS, OutputFormat, QueryOutput, all_of, query_errors
from orbitmq.cli.time_expressions import parse_time
from orbitmq.spark.pipelines.progress import JobProgress

if TYPE_CHECKING:
    from orbitmq.spark.pipelines.sql.stream import StreamOptions

SETTINGS = {
    # The checkpoint of a running query is useless after its end.
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    """The options of ``orbitmq sql``."""

    query: Annotated[
        str | None,
        typer.Argument(metavar="[QUERY]", help="The query. Without one a prompt opens, or standard input is read."),
    ] = None
    nameserver: NameServers = DEFAULT_NAME_SERVER
    archive: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="An archive: older messages are read from it, newer ones from brokers."),
    ] = None
    archive_only: Annotated[
        bool, typer.Option("--archive-only", help="Read only the archive, without any broker.")
    ] = False
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS", help="The fields of JSON bodies for the column value: 'amount int, city string'."
        ),
    ] = None
    stream: Annotated[
        bool, typer.Option("--stream", help="Run the query continuously and show results as messages arrive.")
    ] = False
    begin: Annotated[
        str,
        typer.Option("--from", metavar="earliest|latest|TIME", help="Where a running query starts."),
    ] = "earliest"
    lasting: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="The time after which a running query ends: 30s, 5m, 1h."),
    ] = None
    once: Annotated[
        bool, typer.Option("--once", help="End a running query at the messages that existed at its start.")
    ] = False
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The checkpoint directory of a running query, from which it continues."),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"The maximum number of rows. \\[default: {DEFAULT_ROWS} in a table, otherwise all]"
        ),
    ] = None
    form: Annotated[OutputFormat, typer.Option("--format", help="The format of rows; parquet only with --to.")] = (
        OutputFormat.TABLE
    )
    to: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A new directory to which Spark writes the result."),
    ] = None
    master: Master = None
    conf: Conf = None
    spark_log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The file for Spark's own log. \\[default: a new one in ~/.local/state/orbitmq/spark]",
            show_default=False,
        ),
    ] = None
    dry_run: DryRun = False


@option_groups
def sql(options: SqlOptions) -> None:
    """Query topics and archives with SQL.

    Each topic is a table with its name; a name like `order-events` needs backticks. A row is a message. The columns
    are topic, broker, queue_id, queue_offset, msg_id, unique_id, tags, keys, body, properties, born_timestamp,
    store_timestamp, born_host, store_host, sys_flag and reconsume_times.
    """
    _check(options)
    with job_errors("nothing was changed"), query_errors():
        from orbitmq.spark.pipelines.spark_job import settings_of, spark_job  # noqa: PLC0415 - help does without
        from orbitmq.spark.pipelines.sql.precheck import check_query  # noqa: PLC0415
        from orbitmq.spark.pipelines.sql.query import Queries  # noqa: PLC0415
        from orbitmq.spark.pipelines.sql.topics import TopicPlaces  # noqa: PLC0415

        settings = {**SETTINGS, **settings_of(options.conf or [])}
        places = TopicPlaces(options.nameserver, options.archive, archive_only=options.archive_only)
        # Before Spark starts, which takes seconds.
        topics = places.names()
        for statement in all_of(options.query or ""):
            check_query(statement, places.topic_of)
        progress = JobProgress()
        with contextlib.ExitStack() as stack:
            job = spark_job("sql", progress, options.master, settings, log_path=options.spark_log)
            spark = stack.enter_context(job)
            queries = stack.enter_context(Queries(spark, places, schema=options.schema, warn=complain))
            output = QueryOutput(spark, queries, places, progress, options.form, options.to, options.limit)
            _run(options, output, topics)


def _run(options: SqlOptions, output: QueryOutput, topics: list[str]) -> None:
    if options.stream:
        output.watch(options.query or "", _stream_options(options))
    elif options.dry_run:
        show(output.would_read(options.query or ""), json=options.form is OutputFormat.JSON)
    elif options.query is not None:
        for statement in all_of(options.query):
            output.show(statement)
    else:
        _prompt(output, topics)


def _check(options: SqlOptions) -> None:
    """Raises BadParameter for options that cannot be combined."""
    if not options.stream and (options.once or options.lasting or options.checkpoint):
        raise typer.BadParameter("--once, --for and --checkpoint are for --stream")
    if (options.stream or options.dry_run) and options.query is None:
        raise typer.BadParameter("--stream and --dry-run need a query")
    if options.form is OutputFormat.PARQUET and options.to is None:
        raise typer.BadParameter("--format parquet needs --to DIR")
    is_table = options.form is OutputFormat.TABLE
    if options.to is not None and (is_table or options.stream or options.query is None):
        raise typer.BadParameter("--to DIR needs a query and --format csv, json or parquet, and excludes --stream")


def _stream_options(options: SqlOptions) -> "StreamOptions":
    from orbitmq.spark.pipelines.sql.stream import StreamOptions  # noqa: PLC0415
    from orbitmq.spark.topic_source.options import duration  # noqa: PLC0415

    begin = options.begin
    if begin not in {"earliest", "latest"}:
        begin = datetime.datetime.fromtimestamp(parse_time(begin) / 1000, datetime.UTC).isoformat()
    seconds = None if options.lasting is None else duration("--for", options.lasting)
    return StreamOptions(begin, options.once, seconds, options.checkpoint, options.limit or DEFAULT_ROWS)


def _prompt(output: QueryOutput, topics: list[str]) -> None:
    from orbitmq.cli.sql.prompt import FIRST, Prompt  # noqa: PLC0415
    from orbitmq.spark.schema.columns import COLUMNS  # noqa: PLC0415

    is_interactive = sys.stdin.isatty()
    if is_interactive:
        typer.echo(f"{many(len(topics), 'topic')}; 'help' prints help, 'quit' exits: {FIRST.strip()} …;", err=True)
    # A script ends at its first mistake; at a prompt the next statement may follow.
    ask = output.ask if is_interactive else output.show
    Prompt(ask=ask, show_topics=output.show_topics, words=[*topics, *COLUMNS]).run()
