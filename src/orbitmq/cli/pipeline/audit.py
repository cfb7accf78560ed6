"""``orbitmq pipeline audit``: find lost, duplicated, disordered, stuck, slow and dead messages; write a report."""

import dataclasses
import os
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER
from orbitmq.cli.option_groups import option_groups
from orbitmq.cli.pipeline.options import JobOptions, job_errors, show
from orbitmq.cli.time_expressions import parse_time
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.sessions.session import unavailable

if TYPE_CHECKING:
    from orbitmq.spark.pipelines.audit.request import AuditRequest

SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that runs for seconds: the second compiler would take a core, and its code come too late."""
MAX_SHORT_MESSAGES = 200_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options of the audit."""

    nameserver: Annotated[
        str | None,
        typer.Option(
            "--nameserver",
            "-n",
            envvar="NAMESRV_ADDR",
            metavar="ADDR",
            help="Name servers of the cluster: host:port;host:port. Without a store and an archive it is "
            f"{DEFAULT_NAME_SERVER}.",
        ),
    ] = None
    topics: Annotated[
        str,
        typer.Option(
            "--topics", "-t", metavar="A,B", help="The topics to audit, separated by commas. \\[default: all]"
        ),
    ] = ""
    archive: Annotated[
        str | None, typer.Option(metavar="DIR", help="An archive to compare with the logs of the same queues.")
    ] = None
    store: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="A broker's store directory to read; may be repeated.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Audit messages stored at or after this time: ms since 1970 or ISO."),
    ] = None
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Audit messages stored before this time.")] = (
        None
    )
    groups: Annotated[
        str,
        typer.Option(
            "--groups", "-g", metavar="A,B", help="Consumer groups to check. \\[default: all that brokers know]"
        ),
    ] = ""
    report: Annotated[
        str | None, typer.Option(metavar="DIR", help="The directory for report.html and its tables as Parquet.")
    ] = None
    tolerance_ms: Annotated[
        int, typer.Option(min=0, help="The milliseconds that a message may be older than one before it.")
    ] = 1000
    stuck_seconds: Annotated[int, typer.Option(min=0, help="The age after which an open transaction is stuck.")] = (
        300
    )
    lag_threshold: Annotated[int, typer.Option(min=0, help="The lag of a group in one queue that is accepted.")] = (
        1000
    )
    slow_ms: Annotated[int, typer.Option(min=0, help="The time that a handler may take for one message.")] = 1000
    trace_topic: Annotated[str, typer.Option(help="The topic with the traces of clients.")] = TRACE_TOPIC


@option_groups
def audit(options: AuditOptions, job: JobOptions) -> None:
    """Find lost, duplicated and disordered messages, stuck transactions, slow consumers and dead letters.

    Reads live topics, store directories, an archive and the trace topic, and changes nothing. Each finding has its
    offsets. Exit code 1 means that a message is lost, duplicated or out of order, or that a transaction is stuck.
    """
    since = None if options.since is None else parse_time(options.since)
    until = None if options.until is None else parse_time(options.until)
    with job_errors("it has changed nothing; run the same command again"):
        # These imports need the Spark extra; the help does not.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.pipelines.audit.plan import make_plan  # noqa: PLC0415
        from orbitmq.spark.pipelines.progress import JobProgress  # noqa: PLC0415
        from orbitmq.spark.pipelines.spark_job import settings_of, spark_job  # noqa: PLC0415

        request = _request(options, since, until)
        settings = settings_of(job.conf or ())
        progress = JobProgress(is_quiet=job.json)
        if job.dry_run:
            show(make_plan(request).summary(), json=job.json)
            return
        from orbitmq.spark.pipelines.audit.job import run_audit  # noqa: PLC0415
        from orbitmq.spark.pipelines.audit.plots import check_plots  # noqa: PLC0415
        from orbitmq.spark.pipelines.interruptible import interruptible  # noqa: PLC0415

        if options.report is not None:
            check_plots()
        # Wrong addresses and topics are found before Spark starts, which takes seconds.
        if make_plan(request).messages_at_most <= MAX_SHORT_MESSAGES:
            submit_options = os.environ.get("SPARK_SUBMIT_OPTS", "")
            os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIFE} {submit_options}".strip()
        with spark_job("audit", progress, job.master, settings) as spark:
            plan = make_plan(request)
            summary = interruptible(lambda: run_audit(spark, plan, options.report, progress))
    show(summary, json=job.json)


def _request(options: AuditOptions, since_ms: int | None, until_ms: int | None) -> "AuditRequest":
    """Raises OptionError."""
    from orbitmq.spark.pipelines.audit.request import AuditRequest  # noqa: PLC0415

    has_files = bool(options.store) or options.archive is not None
    return AuditRequest(
        nameserver=options.nameserver or (None if has_files else DEFAULT_NAME_SERVER),
        topics=_names(options.topics),
        archive=options.archive,
        stores=tuple(options.store or ()),
        since_ms=since_ms,
        until_ms=until_ms,
        groups=_names(options.groups),
        trace_topic=options.trace_topic,
        tolerance_ms=options.tolerance_ms,
        stuck_seconds=options.stuck_seconds,
        lag_threshold=options.lag_threshold,
        slow_ms=options.slow_ms,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
