"""``orbitmq pipeline audit``: what is lost, duplicated, out of order, stuck, slow or dead, and a report of it."""

from typing import Annotated

import typer

from orbitmq.cli.console import parse_time
from orbitmq.cli.pipeline_options import Conf, DryRun, Json, Master, job_errors, show
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.spark_session import unavailable


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
        str, typer.Option("--topics", "-t", metavar="A,B", help="Which topics. All, unless said otherwise.")
    ] = "",
    archive: Annotated[
        str | None, typer.Option(metavar="DIR", help="An archive, compared with the logs where both have a queue.")
    ] = None,
    store: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="A broker's store directory; may be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what was stored since; ms since 1970 or ISO.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only what was stored before.")] = None,
    groups: Annotated[
        str,
        typer.Option(
            "--groups", "-g", metavar="A,B", help="Consumer groups. Those that brokers know, unless said."
        ),
    ] = "",
    report: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where report.html and the tables as Parquet are written.")
    ] = None,
    tolerance_ms: Annotated[
        int, typer.Option(min=0, help="How much older than one before it a message may be.")
    ] = 1000,
    stuck_seconds: Annotated[
        int, typer.Option(min=0, help="After how long a transaction that nobody ends is stuck.")
    ] = 300,
    lag_threshold: Annotated[
        int, typer.Option(min=0, help="How many messages of a queue a group may be behind.")
    ] = 1000,
    slow_ms: Annotated[int, typer.Option(min=0, help="How long a handler may take for a message.")] = 1000,
    trace_topic: Annotated[str, typer.Option(help="Where clients write their traces.")] = TRACE_TOPIC,
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Find lost, duplicated and disordered messages, stuck transactions, slow consumers and dead letters.

    Reads live topics, store directories, an archive and the trace topic, and changes nothing. Every finding is
    named with its offsets; exit code 1 says that something is lost, duplicated, out of order or stuck.
    """
    begin = None if since is None else parse_time(since)
    end = None if until is None else parse_time(until)
    if nameserver is None and not store and archive is None:
        nameserver = DEFAULT_NAME_SERVER
    with job_errors("it has changed nothing; run the same command again"):
        # The rest takes what the extra for Spark installs, and help does without.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.pipelines.audit.plan import make_plan  # noqa: PLC0415
        from orbitmq.spark.pipelines.audit.request import AuditRequest  # noqa: PLC0415
        from orbitmq.spark.pipelines.running import settings_of, spark_job  # noqa: PLC0415
        from orbitmq.spark.pipelines.telling import Telling  # noqa: PLC0415

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
        telling = Telling(is_quiet=json)
        if dry_run:
            show(make_plan(request).summary(), json=json)
            return
        from orbitmq.spark.pipelines.audit.job import run_audit  # noqa: PLC0415
        from orbitmq.spark.pipelines.audit.plots import check_plots  # noqa: PLC0415
        from orbitmq.spark.pipelines.interruptible import interruptible  # noqa: PLC0415

        if report is not None:
            check_plots()
        # Wrong addresses and topics are found out before Spark takes its seconds to start.
        make_plan(request)
        with spark_job("audit", telling, master, settings) as spark:
            plan = make_plan(request)
            summary = interruptible(lambda: run_audit(spark, plan, report, telling))
    show(summary, json=json)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
