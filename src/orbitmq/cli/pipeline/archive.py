"""``orbitmq pipeline archive``: write topics to Parquet files, once or continuously."""

import dataclasses
from typing import Annotated

import typer

from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers
from orbitmq.cli.option_groups import option_groups
from orbitmq.cli.pipeline.options import JobOptions, job_errors, show
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.pipelines.archive.defaults import ARCHIVE_GROUP, MAX_MESSAGES
from orbitmq.spark.sessions.session import unavailable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """The options of an archive run."""

    to: Annotated[str, typer.Option(metavar="DIR", help="The directory of the archive, or s3://…, hdfs://….")]
    topics: Annotated[
        str | None, typer.Option(metavar="A,B", help="The topics to archive, separated by commas.")
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Archive all topics whose names match, also those created later."),
    ] = None
    nameserver: NameServers = DEFAULT_NAME_SERVER
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep archiving new messages until Ctrl-C.")] = (
        False
    )
    every: Annotated[str, typer.Option(metavar="TIME", help="The time between two segments with --follow.")] = "10s"
    max_messages: Annotated[
        int, typer.Option(metavar="N", help="The maximum number of messages in one segment.")
    ] = MAX_MESSAGES
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="WHERE", help="Where topics start that are new: earliest, latest or a time."
        ),
    ] = "earliest"
    group: Annotated[
        str,
        typer.Option(metavar="GROUP", help="The consumer group that commits the archived offsets to the brokers."),
    ] = ARCHIVE_GROUP
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Warn of messages that have expired instead of failing.")
    ] = False
    accept_recreated: Annotated[
        bool,
        typer.Option("--accept-recreated", help="Archive recreated topics from their first message."),
    ] = False
    retry: Annotated[
        str, typer.Option(metavar="TIME", help="The time for which unreachable brokers are retried.")
    ] = "60s"


@option_groups
def archive(options: ArchiveOptions, job: JobOptions) -> None:
    """Archive topics as Parquet files by topic and day, each message once, also after a crash.

    The job continues where the archive ends. Without --follow it stops at the messages that exist when it starts.
    """
    with job_errors():
        # These imports need the Spark extra; the help does not.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.pipelines.archive.job import ArchiveJob, planned, run  # noqa: PLC0415
        from orbitmq.spark.pipelines.progress import JobProgress  # noqa: PLC0415
        from orbitmq.spark.pipelines.spark_job import settings_of, spark_job  # noqa: PLC0415
        from orbitmq.spark.topic_source.options import duration  # noqa: PLC0415

        archive_job = ArchiveJob.of(
            to=options.to,
            topics=[] if options.topics is None else [options.topics],
            pattern=options.pattern,
            nameserver=options.nameserver,
            start=options.start,
            group=options.group,
            max_messages=options.max_messages,
            follow=options.follow,
            every=duration("--every", options.every),
            fail_on_data_loss=not options.allow_data_loss,
            accept_recreated=options.accept_recreated,
            retry_seconds=duration("--retry", options.retry),
        )
        settings = settings_of(job.conf or [])
        # Find mistakes before Spark starts, which takes seconds.
        summary = planned(archive_job)
        if job.dry_run:
            show(summary, json=job.json)
            return
        progress = JobProgress()
        with spark_job("archive", progress, job.master, settings) as spark:
            summary = run(spark, archive_job, progress)
        show(summary, json=job.json)
