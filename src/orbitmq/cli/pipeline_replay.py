"""``orbitmq pipeline replay``: messages of an archive sent again, at a rate, at their old pace, or at once."""

from typing import Annotated

import typer

from orbitmq.cli.console import parse_time
from orbitmq.cli.pipeline_options import Conf, DryRun, Json, Master, job_errors, show
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, NameServers
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.spark_session import unavailable


def replay(
    archive: Annotated[str, typer.Argument(metavar="ARCHIVE", help="A directory that 'pipeline archive' made.")],
    topics: Annotated[str, typer.Option("--topics", "-t", metavar="A,B", help="Topics, separated by commas.")],
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Only what was stored since; ms since 1970 or ISO."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only what was stored before.")] = None,
    rate: Annotated[float | None, typer.Option(metavar="N", help="Messages in a second.")] = None,
    pace: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Or: as they once came, 2 is twice as fast. Neither: at once."),
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where all go. To topics of the same names, unless said.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="ID", help="What it is known by; made from the above, unless said.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Once more, if a replay of that name was finished before.")
    ] = False,
    senders: Annotated[
        int | None, typer.Option(metavar="N", help="Tasks that send at once. As many as queues and cores.")
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="DIR", help="What is known of replays, if not in the archive.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Send archived messages again: to the same or another topic or cluster, in order, at a chosen speed.

    Each message says in its properties what it repeats (REPLAY_ID, REPLAY_TOPIC, …). Run the same command again
    after an interruption: it goes on where it was, and sends nothing twice.
    """
    begin = None if start is None else parse_time(start)
    end = None if until is None else parse_time(until)
    with job_errors():
        # The rest takes what the extra for Spark installs, and help does without.
        if reason := unavailable():
            raise SparkSourceError(reason)
        from orbitmq.spark.pipelines.replay.job import opened, planned  # noqa: PLC0415
        from orbitmq.spark.pipelines.replay.request import ReplayRequest  # noqa: PLC0415
        from orbitmq.spark.pipelines.running import settings_of, spark_job  # noqa: PLC0415
        from orbitmq.spark.pipelines.telling import Telling  # noqa: PLC0415

        request = ReplayRequest(
            archive=archive,
            topics=tuple(part.strip() for part in topics.split(",") if part.strip()),
            nameserver=nameserver,
            start_ms=begin,
            until_ms=end,
            rate=rate,
            pace=pace,
            to_topic=to_topic,
            name=name,
            senders=senders,
            state=state,
            again=again,
        )
        settings = settings_of(conf or [])
        telling = Telling()
        if dry_run:
            show(planned(request, telling), json=json)
            return
        with opened(request, telling) as replaying:
            if replaying.is_open:
                with spark_job("replay", telling, master, settings) as spark:
                    summary = replaying.run(spark)
            else:
                summary = replaying.summary()
        show(summary, json=json)
