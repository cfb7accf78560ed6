"""``orbitmq pipeline migrate``: topics copied between Kafka and RocketMQ clusters, and compared."""

from typing import Annotated

import typer

from orbitmq.cli.pipeline_options import Conf, DryRun, Json, Master, job_errors, show
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.spark_session import unavailable


def migrate(
    source: Annotated[
        str, typer.Option("--from", metavar="URL", help="kafka://host:9092, or rocketmq://host:9876 (name server).")
    ],
    target: Annotated[str, typer.Option("--to", metavar="URL", help="The same, for where messages go.")],
    topics: Annotated[
        str,
        typer.Option("--topics", "-t", metavar="A,B[:OTHER]", help="Topics, separated by commas; B becomes OTHER."),
    ],
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where it is kept how far migrations are. \\[default: ~/.local/state/orbitmq/migrations]",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="ID", help="What it is known by; made from the above, unless said.")
    ] = None,
    max_messages: Annotated[int, typer.Option(metavar="N", help="Most messages of one round.")] = 1_000_000,
    verify: Annotated[bool, typer.Option(help="Compare both ends when all is copied.")] = True,
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Copy topics from Kafka or a RocketMQ cluster to another, in order and each message once, and compare.

    Messages say where they come from (MIGRATION_ID, MIGRATION_TOPIC, …). Run the same command again after an
    interruption, or when more has come: it goes on where it was.
    """
    with job_errors():
        # The rest takes what the extra for Spark installs, and help does without.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.pipelines.migrate.job import opened, planned  # noqa: PLC0415
        from orbitmq.spark.pipelines.migrate.request import MigrateRequest  # noqa: PLC0415
        from orbitmq.spark.pipelines.running import settings_of, spark_job  # noqa: PLC0415
        from orbitmq.spark.pipelines.telling import Telling  # noqa: PLC0415

        request = MigrateRequest(
            source=source,
            target=target,
            topics=tuple(part.strip() for part in topics.split(",") if part.strip()),
            state=state,
            name=name,
            max_messages=max_messages,
            verify=verify,
        )
        settings = settings_of(conf or [])
        telling = Telling()
        if dry_run:
            show(planned(request, telling), json=json)
            return
        with opened(request, telling) as migrating:
            if migrating.needs_spark:
                with spark_job("migrate", telling, master, settings) as spark:
                    summary = migrating.run(spark)
            else:
                summary = migrating.run(None)
        show(summary, json=json)
