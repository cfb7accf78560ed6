"""``orbitmq pipeline rebuild``: rebuild consume queues and index from the commit log with parallel tasks."""

import os
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.pipeline.options import Conf, DryRun, Json, Master, job_errors, show
from orbitmq.cli.store.options import holder_of
from orbitmq.spark.pipelines.progress import JobProgress
from orbitmq.spark.pipelines.rebuild.job import rebuild as rebuild_job
from orbitmq.spark.pipelines.rebuild.job import settings_in, what_would_be_done
from orbitmq.spark.pipelines.spark_job import PipelineError, settings_of, spark_job

Store = Annotated[str, typer.Argument(metavar="STORE", help="The store: the directory that contains commitlog.")]
To = Annotated[
    str | None, typer.Option("--to", metavar="DIR", help="The directory for the result; the store stays unchanged.")
]
Check = Annotated[
    bool,
    typer.Option("--check", help="Compare with the store and change nothing; exit code 1 if it differs."),
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Keep the replaced directories as consumequeue.before-rebuild and so on.")
]
BrokerConf = Annotated[
    Path | None,
    typer.Option("--broker-conf", help="The broker.conf of the store. File sizes are detected without it."),
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
    """Rebuild consume queues and index of a stopped store from its commit log, byte by byte as its broker would."""
    with job_errors("the store is as it was; run the same command again to build from the beginning"):
        given = None if broker_conf is None else str(broker_conf)
        settings = settings_of(conf or ())
        root, out = os.path.abspath(store), None if to is None else os.path.abspath(to)
        # Find mistakes before Spark starts, which takes seconds.
        would = what_would_be_done(root, to=out, check=check, keep=keep, conf=settings_in(given))
        if holder_of(root) is not None:
            raise PipelineError(f"the store {root} is open in another process: stop that one first")
        if not dry_run:
            progress = JobProgress()
            # Spark's own part is small here: the second compiler of Java costs more than it gains.
            options = os.environ.get("SPARK_SUBMIT_OPTS", "")
            os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:TieredStopAtLevel=1 {options}".strip()
            with spark_job("pipeline rebuild", progress, master, settings) as spark:
                would = rebuild_job(
                    spark, root, to=out, check=check, keep=keep, broker_conf=given, progress=progress
                )
        show(would, json=json)
