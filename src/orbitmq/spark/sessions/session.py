"""A Spark session with settings that suit topics and streams, on one machine or on a cluster.

Every setting here is only a default: what ``spark-defaults.conf``, ``spark-submit --conf``, ``SPARK_*`` variables
or the caller say wins, and a session that runs already is given back as it is. Nothing else in this package needs
a session that was made here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from typing import TYPE_CHECKING

from orbitmq.spark.errors import OptionError, SparkSourceError
from orbitmq.spark.sessions import java
from orbitmq.spark.sessions.environment import configured_master, prepare_connect, prepare_jvm, worker_python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

EVERYWHERE = {
    # Without it a filter on a queue, an offset or a time reads the whole topic.
    "spark.sql.python.filterPushdown.enabled": "true",
}

ON_ONE_MACHINE = {
    "spark.ui.enabled": "false",
    # Of a micro-batch's quarter of a second these two save a third: Spark's own way of writing checkpoints to
    # local files starts a program for each of them.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Settings for a driver, executors and checkpoints on one machine."""

MAX_SHUFFLE_PARTITIONS = 32
PROGRESS = "spark.ui.showConsoleProgress"
NOT_INSTALLED = "Spark is not installed: run 'pip install \"orbitmq[spark]\"'"


def unavailable() -> str | None:
    """None if Spark can run on this machine, otherwise the reason in one sentence."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return NOT_INSTALLED
    try:
        java.find()
    except java.JavaMissingError as error:
        return str(error)
    return None


def session(
    app_name: str = "orbitmq", master: str | None = None, *, remote: str | None = None, **conf: object
) -> SparkSession:
    """Get the session of this process, or create it.

    ``master`` defaults to that of Spark's own configuration, else to ``local[*]``; ``remote`` is the address of a
    Spark Connect server (``sc://host:15002``), which needs no Java here. ``conf`` are settings by their names in
    Spark: ``session(**{"spark.driver.memory": "4g"})``.

    Raises SparkSourceError.
    """
    return session_with(app_name, master, conf, remote=remote)


def session_with(
    app_name: str,
    master: str | None,
    conf: Mapping[str, object],
    *,
    remote: str | None = None,
    stderr: int | None = None,
) -> SparkSession:
    """The same. A JVM that is started here has this file for its standard error, if one is given.

    It is also that of the Python processes which the JVM starts.
    """
    given = {name: _text(name, value) for name, value in conf.items()}
    if importlib.util.find_spec("pyspark") is None:
        raise SparkSourceError(NOT_INSTALLED)
    if remote is not None and master is not None:
        raise OptionError("a session has a master or is remote, not both")
    if master is not None:
        given["spark.master"] = master
    elif remote := remote or os.environ.get("SPARK_REMOTE"):
        return _remote(app_name, remote, given)
    return _classic(app_name, given, stderr)


def _text(name: str, value: object) -> str:
    if not name.startswith("spark."):
        raise OptionError(f"{name!r} is not a setting of Spark: their names begin with 'spark.'")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _remote(app_name: str, remote: str, given: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if not remote.startswith("sc://"):
        prepare_connect()
    builder = SparkSession.builder.remote(remote).appName(app_name).config(map={**EVERYWHERE, **given})
    try:
        return builder.getOrCreate()
    except ImportError as error:
        what = re.split(r"[;:\n]", str(error))[0]
        raise SparkSourceError(f"{what}: Spark Connect takes 'pip install \"pyspark[connect]\"'") from None


def _classic(app_name: str, given: Mapping[str, str], stderr: int | None) -> SparkSession:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.config(map=dict(given)).getOrCreate()
    if SparkContext._gateway is None:
        prepare_jvm(_is_local(given.get("spark.master") or configured_master() or "local"))
        # Some settings have to be known before the JVM starts. It merges the rest.
        settings = SparkConf(loadDefaults=False).setAll(list(given.items()))
        gateway = None if stderr is None else launch_gateway(settings, {"stderr": stderr})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway, conf=settings)
    configured = SparkConf()
    defaults = _defaults(given.get("spark.master") or configured.get("spark.master") or "local[*]")
    builder = SparkSession.builder.appName(app_name)
    for name, value in defaults.items():
        if not configured.contains(name):
            builder = builder.config(name, value)
    if not sys.stderr.isatty():
        # A progress bar set by the user cannot be distinguished from the default of spark-submit.
        builder = builder.config(PROGRESS, "false")
    return builder.config(map=dict(given)).getOrCreate()


def _defaults(master: str) -> dict[str, str]:
    defaults = {"spark.master": master, **EVERYWHERE}
    if _is_local(master):
        # A cluster's machines may keep another interpreter.
        os.environ.setdefault("PYSPARK_PYTHON", worker_python())
        partitions = min(max(_cores(master), 2), MAX_SHUFFLE_PARTITIONS)
        defaults |= {**ON_ONE_MACHINE, "spark.sql.shuffle.partitions": str(partitions)}
    return defaults


def _is_local(master: str) -> bool:
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _cores(master: str) -> int:
    if master == "local":
        return 1
    number = re.match(r"local\[(\d+)", master)
    return int(number[1]) if number else len(os.sched_getaffinity(0))
