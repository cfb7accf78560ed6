"""``orbitmq pipeline audit``: find lost, duplicated, disordered, stuck, slow and dead messages; write a report."""

import os
from typing import Annotated

import typer

from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER
from orbitmq.cli.output import parse_time
from orbitmq.cli.pipeline.options import Conf, DryRun, Json, Master, job_errors, show
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.sessions.session import unavailable

SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that runs for seconds: the second compiler would take a core, and its code come too late."""
MAX_SHORT_MESSAGES = 200_000


def audit(
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
    ] = None,
    topics: Annotated[
        str,
        typer.Option(
            "--topics", "-t", metavar="A,B", help="The topics to audit, separated by commas. \\[default: all]"
        ),
    ] = "",
    archive: Annotated[
        str | None, typer.Option(metavar="DIR", help="An archive to compare with the logs of the same queues.")
    ] = None,
    store: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="A broker's store directory to read; may be repeated.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Audit messages stored at or after this time: ms since 1970 or ISO."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Audit messages stored before this time.")
    ] = None,
    groups: Annotated[
        str,
        typer.Option(
            "--groups", "-g", metavar="A,B", help="Consumer groups to check. \\[default: all that brokers know]"
        ),
    ] = "",
    report: Annotated[
        str | None, typer.Option(metavar="DIR", help="The directory for report.html and its tables as Parquet.")
    ] = None,
    tolerance_ms: Annotated[
        int, typer.Option(min=0, help="The milliseconds that a message may be older than one before it.")
    ] = 1000,
    stuck_seconds: Annotated[
        int, typer.Option(min=0, help="The age after which an open transaction is stuck.")
    ] = 300,
    lag_threshold: Annotated[
        int, typer.Option(min=0, help="The lag of a group in one queue that is accepted.")
    ] = 1000,
    slow_ms: Annotated[int, typer.Option(min=0, help="The time that a handler may take for one message.")] = 1000,
    trace_topic: Annotated[str, typer.Option(help="The topic with the traces of clients.")] = TRACE_TOPIC,
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Find lost, duplicated and disordered messages, stuck transactions, slow consumers and dead letters.

    Reads live topics, store directories, an archive and the trace topic, and changes nothing. Each finding has its
    offsets. Exit code 1 means that a message is lost, duplicated or out of order, or that a transaction is stuck.
    """
    begin = None if since is None else parse_time(since)
    end = None if until is None else parse_time(until)
    if nameserver is None and not store and archive is None:
        nameserver = DEFAULT_NAME_SERVER
    with job_errors("it has changed nothing; run the same command again"):
        # These imports need the Spark extra; the help does not.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.pipelines.audit.plan import make_plan  # noqa: PLC0415
        from orbitmq.spark.pipelines.audit.request import AuditRequest  # noqa: PLC0415
        from orbitmq.spark.pipelines.progress import JobProgress  # noqa: PLC0415
        from orbitmq.spark.pipelines.spark_job import settings_of, spark_job  # noqa: PLC0415

        request = AuditRequest(
            nameserver=nameserver,
            topics=_names(topics),
            archive=archive,
            stores=tuple(store or ()),
            since_ms=begin,
            until_ms=end,
            groups=_names(groups),
            trace_topic=trace_topic,
            tolerance_ms=tolerance_ms,
            stuck_seconds=stuck_seconds,
            lag_threshold=lag_threshold,
            slow_ms=slow_ms,
        )
        settings = settings_of(conf or ())
        progress = JobProgress(is_quiet=json)
        if dry_run:
            show(make_plan(request).summary(), json=json)
            return
        from orbitmq.spark.pipelines.audit.job import run_audit  # noqa: PLC0415
        from orbitmq.spark.pipelines.audit.plots import check_plots  # noqa: PLC0415
        from orbitmq.spark.pipelines.interruptible import interruptible  # noqa: PLC0415

        if report is not None:
            check_plots()
        # Wrong addresses and topics are found before Spark starts, which takes seconds.
        if make_plan(request).messages_at_most <= MAX_SHORT_MESSAGES:
            options = os.environ.get("SPARK_SUBMIT_OPTS", "")
            os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIFE} {options}".strip()
        with spark_job("audit", progress, master, settings) as spark:
            plan = make_plan(request)
            summary = interruptible(lambda: run_audit(spark, plan, report, progress))
    show(summary, json=json)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
