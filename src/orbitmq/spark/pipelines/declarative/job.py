"""Projects of Spark Declarative Pipelines: creating them, running them, and the summary of a run.

Spark runs such pipelines through Spark Connect. The server for that lives in this process, beside an ordinary
session on any master, at a port of its own. Tables are kept in a catalog in the project's folder, because the
catalog that Spark has by default forgets them and then refuses the second run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.resources
import os
import re
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.declarative.project import SPEC_NAMES, find_spec, read_project
from orbitmq.spark.pipelines.declarative.samples import FOLDER as SAMPLES
from orbitmq.spark.pipelines.declarative.samples import send_samples
from orbitmq.spark.pipelines.interruptible import interruptible
from orbitmq.spark.pipelines.progress import JobProgress, Summary, silent
from orbitmq.spark.pipelines.spark_job import PipelineError, sentence_of, spark_errors, spark_job

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.declarative.project import Project

EXAMPLES = ("sessions", "orders", "dead-letters", "cdc")
OWN = ".orbitmq"
_SPEC = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""
_FLOW = re.compile(r"Flow '?([^\s']+)'? (?:is |has )?([A-Z]+)\b")
_QUOTED = re.compile(r"'([^']+)'")
_WHY = "\nError:"
"""Between what happened to a flow and why, in Spark's events."""
_UPSTREAM = "due to upstream failure"


@dataclasses.dataclass(frozen=True, slots=True)
class Refresh:
    """The tables that a run refreshes: all by default, some only, or some from the start."""

    only: Sequence[str] = ()
    full: Sequence[str] = ()
    full_all: bool = False


def init_project(folder: pathlib.Path, examples: Sequence[str] = EXAMPLES[:1]) -> list[pathlib.Path]:
    """Create a project with examples in a new folder; returns its files. Raises PipelineError and OSError."""
    for name in examples:
        if name not in EXAMPLES:
            raise PipelineError(f"there is no example {name!r}: choose from {', '.join(EXAMPLES)}")
    if folder.exists() and any(folder.iterdir()):
        raise PipelineError(f"{folder} is there already, and is not empty")
    transformations = folder / "transformations"
    transformations.mkdir(parents=True)
    spec = folder / SPEC_NAMES[0]
    storage = (folder / "storage").resolve().as_uri()
    spec.write_text(_SPEC.format(name=folder.resolve().name, storage=storage), encoding="utf-8")
    made = [spec]
    sources = importlib.resources.files("orbitmq.spark.pipelines.declarative") / "examples"
    for name in examples:
        example = sources / name.replace("-", "_")
        for source in sorted(example.iterdir(), key=lambda one: one.name):
            if source.name.endswith((".py", ".sql")):
                target = transformations / source.name
                target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
                made.append(target)
        if (samples := example / SAMPLES).is_dir():
            (folder / SAMPLES).mkdir(exist_ok=True)
            for source in sorted(samples.iterdir(), key=lambda one: one.name):
                target = folder / SAMPLES / source.name
                target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
                made.append(target)
    return made


def run_project(
    project: Project,
    *,
    nameserver: str | None = None,
    refresh: Refresh | None = None,
    dry_run: bool = False,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: JobProgress | None = None,
) -> Summary:
    """Bring all tables and sinks of a pipeline up to date. Raises OrbitMQError."""
    progress = progress or silent()
    if nameserver:
        os.environ["NAMESRV_ADDR"] = nameserver
    started = time.monotonic()
    if not dry_run:
        send_samples(project.folder, nameserver, progress)
    with _connected(project, progress, master, conf or {}) as spark:
        flows = interruptible(
            lambda: _run(project, spark, refresh or Refresh(), dry_run, progress),
            # Flows whose jobs are cancelled would be tried again.
            spark.interruptAll,
        )
    done = [name for name, state in flows.items() if state == "COMPLETED"]
    return Summary(
        f"pipeline {project.name}" + (" (dry run)" if dry_run else ""),
        {
            "flows": len(flows),
            "completed": sorted(done),
            "not_completed": {name: state.lower() for name, state in flows.items() if state != "COMPLETED"},
            "seconds": round(time.monotonic() - started, 1),
        },
        is_good=dry_run or len(done) == len(flows),
    )


def open_project(path: pathlib.Path | None = None) -> Project:
    """The project of a spec file, a folder, or of where we are, if Spark can run it. Raises PipelineError."""
    project = read_project(find_spec(path))
    if project.problems:
        raise PipelineError(str(project.problems[0]))
    return project


@contextlib.contextmanager
def _connected(
    project: Project, progress: JobProgress, master: str | None, conf: Mapping[str, str]
) -> Iterator[SparkSession]:
    try:
        import grpc  # noqa: F401, PLC0415
        from pyspark.sql.connect.session import SparkSession as RemoteSession  # noqa: PLC0415
    except ImportError as error:
        raise PipelineError(f"declarative pipelines take 'pip install \"orbitmq[pipelines]\"': {error}") from error
    port = _free_port()
    # Who has no token is not served: the port is open to everybody on this machine.
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = secrets.token_hex(16)
    with spark_job(f"pipeline {project.name}", progress, master, {**_settings(project, port), **conf}):
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # What functions of Spark go by.
        try:
            remote = RemoteSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
            try:
                with spark_errors():
                    yield remote  # type: ignore[misc]  # Spark treats both kinds of sessions as one.
            finally:
                with contextlib.suppress(Exception):
                    remote.stop()
        finally:
            del os.environ["SPARK_CONNECT_MODE_ENABLED"]


def _settings(project: Project, port: int) -> dict[str, str]:
    own = project.folder / OWN
    own.mkdir(exist_ok=True)
    catalog = f"jdbc:derby:;databaseName={own / 'catalog'};create=true"
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        "spark.sql.connect.serverStacktrace.enabled": "false",
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": catalog,
        "spark.sql.warehouse.dir": (project.folder / "warehouse").as_uri(),
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={own / 'catalog.log'}",
    }


def _run(
    project: Project, spark: SparkSession, refresh: Refresh, dry_run: bool, progress: JobProgress
) -> dict[str, str]:
    """The flows of a run with the state in which each of them ended."""
    from pyspark.pipelines import cli, spark_connect_pipeline  # noqa: PLC0415
    from pyspark.pipelines.spark_connect_graph_element_registry import (  # noqa: PLC0415
        SparkConnectGraphElementRegistry,
    )

    spec = cli.load_pipeline_spec(project.spec)
    graph = spark_connect_pipeline.create_dataflow_graph(
        spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf=spec.configuration
    )
    with progress.step("Definitions are read"), contextlib.redirect_stdout(None):
        registry = SparkConnectGraphElementRegistry(spark, graph)
        cli.register_definitions(project.spec, registry, spec, spark, graph)
    flows: dict[str, str] = {}
    events = spark_connect_pipeline.start_run(
        spark,
        graph,
        full_refresh=list(refresh.full),
        full_refresh_all=refresh.full_all,
        refresh=list(refresh.only),
        dry=dry_run,
        storage=spec.storage,
    )
    with progress.step("The pipeline is checked" if dry_run else "The pipeline runs"):
        for text in _texts(events):
            if match := _FLOW.match(text):
                name, state = _short(match[1]), match[2]
                flows[name] = state
                if state in {"COMPLETED", "FAILED"}:
                    progress.say(f"{name}: {state.lower()}")
            progress.at(sum(state == "COMPLETED" for state in flows.values()))
    return flows


def _texts(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Raises PipelineError with the reason why a flow failed."""
    failures: list[str] = []
    try:
        for event in events:
            if found := event.get("pipeline_event_result"):
                text = str(found.event.message)
                if "FAILED" in text or _WHY in text:
                    failures.append(text)
                yield text
    except Exception as error:
        # Spark's last word is only that the run has failed; the reason came before it.
        raise PipelineError(failure_of(failures) if failures else sentence_of(error)) from error


def failure_of(events: Sequence[str]) -> str:
    """The sentence for the events of flows that failed: which flow it began with, and why it did."""
    first = next((text for text in events if _UPSTREAM not in text), events[0])
    what, _, why = first.partition(_WHY)
    if not why.strip():
        return sentence_of(Exception(what))
    named = _QUOTED.search(what)
    reason = sentence_of(Exception(why))
    return f"the flow {_short(named[1])!r} failed: {reason}" if named else reason


def _short(name: str) -> str:
    """A flow's name without its catalog and database."""
    return name.rsplit(".", maxsplit=1)[-1].strip("`")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
