"""``orbitmq pipeline archive``: topics to Parquet files, once or for as long as it runs."""

from typing import Annotated

import typer

from orbitmq.cli.pipeline_options import Conf, DryRun, Json, Master, job_errors, show
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, NameServers
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.pipelines.archive.defaults import ARCHIVE_GROUP, MAX_MESSAGES
from orbitmq.spark.spark_session import unavailable


def archive(
    to: Annotated[str, typer.Option(metavar="DIR", help="The archive: a directory, or s3://…, hdfs://….")],
    topics: Annotated[str | None, typer.Option(metavar="A,B", help="Topics, separated by commas.")] = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Or: all topics with such names, also later ones.")
    ] = None,
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="With --follow: how often a segment is added.")
    ] = "10s",
    max_messages: Annotated[int, typer.Option(metavar="N", help="Most of one segment.")] = MAX_MESSAGES,
    start: Annotated[
        str,
        typer.Option("--from", metavar="WHERE", help="Of topics that are new to it: earliest, latest or a time."),
    ] = "earliest",
    group: Annotated[
        str, typer.Option(metavar="GROUP", help="The consumer group by which brokers know what is archived.")
    ] = ARCHIVE_GROUP,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Note messages that are gone, instead of failing.")
    ] = False,
    accept_recreated: Annotated[
        bool,
        typer.Option("--accept-recreated", help="Archive topics anew that were deleted and made again."),
    ] = False,
    retry: Annotated[str, typer.Option(metavar="TIME", help="How long brokers may be away.")] = "60s",
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Archive topics as Parquet files by topic and day: each message once, whatever ends a run.

    Without --follow it archives what is there when it starts. It goes on where the archive ends.
    """
    with job_errors():
        # The rest takes what the extra for Spark installs, and help does without.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.options import duration  # noqa: PLC0415
        from orbitmq.spark.pipelines.archive.job import ArchiveJob, planned, run  # noqa: PLC0415
        from orbitmq.spark.pipelines.running import settings_of, spark_job  # noqa: PLC0415
        from orbitmq.spark.pipelines.telling import Telling  # noqa: PLC0415

        job = ArchiveJob.of(
            to=to,
            topics=[] if topics is None else [topics],
            pattern=pattern,
            nameserver=nameserver,
            start=start,
            group=group,
            max_messages=max_messages,
            follow=follow,
            every=duration("--every", every),
            fail_on_data_loss=not allow_data_loss,
            accept_recreated=accept_recreated,
            retry_seconds=duration("--retry", retry),
        )
        settings = settings_of(conf or [])
        # Also before a run: what cannot be done is said before Spark starts, which takes its time.
        summary = planned(job)
        if dry_run:
            show(summary, json=json)
            return
        telling = Telling()
        with spark_job("archive", telling, master, settings) as spark:
            summary = run(spark, job, telling)
        show(summary, json=json)
