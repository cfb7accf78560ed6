"""``orbitmq pipeline migrate``: copy topics between Kafka and RocketMQ clusters, and compare them."""

import dataclasses
from typing import Annotated

import typer

from orbitmq.cli.option_groups import option_groups
from orbitmq.cli.pipeline.options import JobOptions, job_errors, show
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.sessions.session import unavailable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigrateOptions:
    """The options of a migration."""

    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="URL", help="The source: kafka://host:9092, or rocketmq://host:9876 (name server)."
        ),
    ]
    target: Annotated[
        str, typer.Option("--to", metavar="URL", help="The target, with an address of the same form.")
    ]
    topics: Annotated[
        str,
        typer.Option(
            "--topics",
            "-t",
            metavar="A,B[:OTHER]",
            help="The topics to copy, separated by commas; B becomes OTHER.",
        ),
    ]
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The directory with the progress of migrations. \\[default: ~/.local/state/orbitmq/migrations]",
            show_default=False,
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The id of this migration. \\[default: made from the options above]"),
    ] = None
    max_messages: Annotated[int, typer.Option(metavar="N", help="The maximum number of messages in one round.")] = (
        1_000_000
    )
    verify: Annotated[bool, typer.Option(help="Compare source and target after the copy.")] = True


@option_groups
def migrate(options: MigrateOptions, job: JobOptions) -> None:
    """Copy topics from Kafka or a RocketMQ cluster to another, in order and each message once, and compare.

    Messages say where they come from (MIGRATION_ID, MIGRATION_TOPIC, …). Run the same command again after an
    interruption, or when more has come: it goes on where it was.
    """
    with job_errors():
        # These imports need the Spark extra; the help does not.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.pipelines.migrate.job import opened, planned  # noqa: PLC0415
        from orbitmq.spark.pipelines.migrate.request import MigrateRequest  # noqa: PLC0415
        from orbitmq.spark.pipelines.progress import JobProgress  # noqa: PLC0415
        from orbitmq.spark.pipelines.spark_job import settings_of, spark_job  # noqa: PLC0415

        request = MigrateRequest(
            source=options.source,
            target=options.target,
            topics=tuple(part.strip() for part in options.topics.split(",") if part.strip()),
            state=options.state,
            name=options.name,
            max_messages=options.max_messages,
            verify=options.verify,
        )
        settings = settings_of(job.conf or [])
        progress = JobProgress()
        if job.dry_run:
            show(planned(request, progress), json=job.json)
            return
        with opened(request, progress) as migrating:
            if migrating.needs_spark:
                with spark_job("migrate", progress, job.master, settings) as spark:
                    summary = migrating.run(spark)
            else:
                summary = migrating.run(None)
        show(summary, json=job.json)
