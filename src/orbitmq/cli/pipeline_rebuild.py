"""``orbitmq pipeline rebuild``: consume queues and index again from the log alone, by many tasks at once."""

import os
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.opening import holder_of
from orbitmq.cli.pipeline_options import Conf, DryRun, Json, Master, job_errors, show
from orbitmq.spark.pipelines.rebuild.job import rebuild as rebuild_job
from orbitmq.spark.pipelines.rebuild.job import settings_in, what_would_be_done
from orbitmq.spark.pipelines.running import PipelineError, settings_of, spark_job
from orbitmq.spark.pipelines.telling import Telling

Store = Annotated[str, typer.Argument(metavar="STORE", help="The store: the directory that holds commitlog.")]
To = Annotated[
    str | None, typer.Option("--to", metavar="DIR", help="Write to this directory, and leave the store as it is.")
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Compare with what the store has, change nothing; exit code 1 if it differs."),
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep what is replaced, as consumequeue.before-rebuild and so on.")
]
BrokerConf = Annotated[
    Path | None,
    typer.Option("--broker-conf", help="The broker.conf the store was written with. Sizes are found without it."),
]


def rebuild(
    store: Store,
    to: To = None,
    check: Check = False,
    keep: Keep = False,
    broker_conf: BrokerConf = None,
    master: Master = None,
    conf: Conf = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Build consume queues and index of a stopped store from its log, as its broker would have written them."""
    with job_errors("the store is as it was; run the same command again to build from the beginning"):
        given = None if broker_conf is None else str(broker_conf)
        settings = settings_of(conf or ())
        root, out = os.path.abspath(store), None if to is None else os.path.abspath(to)
        # Before Spark starts, which takes seconds: most of what can be wrong is wrong already.
        would = what_would_be_done(root, to=out, check=check, keep=keep, conf=settings_in(given))
        if holder_of(root) is not None:
            raise PipelineError(f"the store {root} is open in another process: stop that one first")
        if not dry_run:
            telling = Telling()
            # Spark's own part is small here: what Java's second compiler wins is less than what it takes.
            options = os.environ.get("SPARK_SUBMIT_OPTS", "")
            os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:TieredStopAtLevel=1 {options}".strip()
            with spark_job("pipeline rebuild", telling, master, settings) as spark:
                would = rebuild_job(spark, root, to=out, check=check, keep=keep, broker_conf=given, telling=telling)
        show(would, json=json)
