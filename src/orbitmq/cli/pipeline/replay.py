"""``orbitmq pipeline replay``: send archived messages again, at a rate, at their old pace, or unthrottled."""

import dataclasses
from typing import Annotated

import typer

from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers
from orbitmq.cli.option_groups import option_groups
from orbitmq.cli.pipeline.options import JobOptions, job_errors, show
from orbitmq.cli.time_expressions import parse_time
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.sessions.session import unavailable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of a replay."""

    archive: Annotated[
        str, typer.Argument(metavar="ARCHIVE", help="The directory of an archive made by 'pipeline archive'.")
    ]
    topics: Annotated[
        str, typer.Option("--topics", "-t", metavar="A,B", help="The topics to replay, separated by commas.")
    ]
    nameserver: NameServers = DEFAULT_NAME_SERVER
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Replay messages stored at or after this time: ms since 1970 or ISO."
        ),
    ] = None
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Replay messages stored before this time.")] = (
        None
    )
    rate: Annotated[float | None, typer.Option(metavar="N", help="The rate in messages per second.")] = None
    pace: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="The pace of their store times times FACTOR. \\[default: unthrottled]"),
    ] = None
    to_topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The topic for all messages. \\[default: the topic of the same name]"),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The id of this replay. \\[default: made from the options above]"),
    ] = None
    again: Annotated[
        bool, typer.Option("--again", help="Replay once more if a replay with this id was finished.")
    ] = False
    senders: Annotated[
        int | None, typer.Option(metavar="N", help="The number of sending tasks. \\[default: by queues and cores]")
    ] = None
    state: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The directory with the progress of replays. \\[default: in the archive]"),
    ] = None


@option_groups
def replay(options: ReplayOptions, job: JobOptions) -> None:
    """Send archived messages again: to the same or another topic or cluster, in order, at a chosen speed.

    Each message says in its properties what it repeats (REPLAY_ID, REPLAY_TOPIC, …). Run the same command again
    after an interruption: it goes on where it was, and sends nothing twice.
    """
    begin = None if options.start is None else parse_time(options.start)
    end = None if options.until is None else parse_time(options.until)
    with job_errors():
        # These imports need the Spark extra; the help does not.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.pipelines.progress import JobProgress  # noqa: PLC0415
        from orbitmq.spark.pipelines.replay.job import opened, planned  # noqa: PLC0415
        from orbitmq.spark.pipelines.replay.request import ReplayRequest  # noqa: PLC0415
        from orbitmq.spark.pipelines.spark_job import settings_of, spark_job  # noqa: PLC0415

        request = ReplayRequest(
            archive=options.archive,
            topics=tuple(part.strip() for part in options.topics.split(",") if part.strip()),
            nameserver=options.nameserver,
            start_ms=begin,
            until_ms=end,
            rate=options.rate,
            pace=options.pace,
            to_topic=options.to_topic,
            name=options.name,
            senders=options.senders,
            state=options.state,
            again=options.again,
        )
        settings = settings_of(job.conf or [])
        progress = JobProgress()
        if job.dry_run:
            show(planned(request, progress), json=job.json)
            return
        with opened(request, progress) as replaying:
            if replaying.is_open:
                with spark_job("replay", progress, job.master, settings) as spark:
                    summary = replaying.run(spark)
            else:
                summary = replaying.summary()
        show(summary, json=job.json)
