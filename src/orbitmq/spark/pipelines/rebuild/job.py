"""The ``rebuild`` pipeline: rebuilds consume queues and index of a store from its log with parallel tasks."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.progress import Summary, silent
from orbitmq.spark.pipelines.rebuild.builder import Built, build, sync_names
from orbitmq.spark.pipelines.rebuild.comparison import compare
from orbitmq.spark.pipelines.rebuild.tasks import SparkTasks
from orbitmq.spark.pipelines.spark_job import PipelineError, spark_errors
from orbitmq.store import LocalDisk, parse_conf
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.rebuild import (
    BUILT,
    OLD,
    SCRATCH,
    check_log,
    check_settings,
    exclusive,
    remove_tree,
    swap_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from orbitmq.platform.disk import Disk
    from orbitmq.spark.pipelines.progress import JobProgress
    from orbitmq.spark.pipelines.rebuild.builder import RunTasks
    from orbitmq.store.tools.detect_layout import Layout

KEPT = "before-rebuild"
"""What is added to the names of queues and index that were replaced, where they are to be kept."""
MAX_DIFFERENCES = 20
"""Differences that are listed one by one."""


def rebuild(
    spark: SparkSession,
    store: str,
    *,
    to: str | None = None,
    check: bool = False,
    keep: bool = False,
    broker_conf: str | None = None,
    chunk_bytes: int | None = None,
    progress: JobProgress | None = None,
) -> Summary:
    """Build consume queues and index of a store from its log, and put them in the place of those that are there.

    The store must not be open. All machines of Spark must reach it by this path. With ``to`` the store keeps what
    it has, and that directory gets what was built; with ``check`` both are compared and nothing is changed, and the
    summary is good if there is no difference. ``keep`` leaves what was replaced beside it. ``broker_conf`` is the
    configuration that the store was written with, where its files do not tell.

    Raises PipelineError, StoreError and ConfigError.
    """
    progress = progress or silent()
    with spark_errors():
        tasks = SparkTasks(spark, progress)
        return rebuild_with(
            tasks,
            tasks.parallelism,
            os.path.abspath(store),
            to=None if to is None else os.path.abspath(to),
            check=check,
            keep=keep,
            conf=settings_in(broker_conf),
            chunk_bytes=chunk_bytes,
            progress=progress,
        )


def rebuild_with(
    run_tasks: RunTasks,
    parallelism: int,
    root: str,
    *,
    to: str | None = None,
    check: bool = False,
    keep: bool = False,
    conf: dict[str, str] | None = None,
    chunk_bytes: int | None = None,
    progress: JobProgress | None = None,
) -> Summary:
    """Rebuild with any runner of tasks."""
    progress = progress or silent()
    disk = LocalDisk()
    check_request(disk, root, to=to, check=check, keep=keep, conf=conf)
    began = time.perf_counter()
    with exclusive(disk, root):
        # Only now: an interrupted rebuild may have had the files elsewhere that tell the sizes.
        layout = _with_absolute_paths(survey(disk, root, conf))
        check_settings(layout)
        check_log(disk, layout.config)
        for assumed in layout.assumed:
            if matters(assumed, layout):
                progress.say(f"{assumed} is assumed, because no file tells: if that is wrong, give --broker-conf")
        scratch = os.path.join(to or root, SCRATCH)
        remove_tree(disk, scratch)
        try:
            built = build(disk, layout, scratch, run_tasks, parallelism=parallelism, chunk_bytes=chunk_bytes)
            facts = _facts(root, built)
            if check:
                summary = _compared(root, built, facts, began)
                _clear(disk, scratch)
                return summary
            sync_names(disk, scratch, BUILT)
        except (Exception, KeyboardInterrupt):
            _clear(disk, scratch)
            raise
        # From here on an interruption leaves what the next run, or a broker, knows how to go on with.
        if to is not None:
            _move_out(disk, scratch, to)
            facts["written_to"] = to
        else:
            with _uninterrupted():
                _replace(disk, layout, built, keep=keep)
        remove_tree(disk, scratch)
    facts["seconds"] = round(time.perf_counter() - began, 3)
    return Summary("Queues and index were built from the log", facts)


def what_would_be_done(
    root: str, *, to: str | None = None, check: bool = False, keep: bool = False, conf: dict[str, str] | None = None
) -> Summary:
    """The summary of a dry run, without Spark. Raises as ``rebuild`` does."""
    disk = LocalDisk()
    check_request(disk, root, to=to, check=check, keep=keep, conf=conf)
    layout = survey(disk, root, conf)
    check_settings(layout)
    check_log(disk, layout.config)
    config = layout.config
    logs = [name for directory in config.commit_log_dirs for name in disk.list(directory) if name.isdigit()]
    replaced = [name for name in BUILT if disk.stat(os.path.join(root, name)) is not None]
    facts: dict[str, Any] = {
        "store": root,
        "log_files": len(logs),
        "log_bytes": len(logs) * config.mapped_file_size_commit_log,
        "queue_file_bytes": config.mapped_file_size_consume_queue,
        "index": f"{config.max_hash_slot_num} slots, {config.max_index_num} entries"
        if config.message_index_enable
        else "none: messageIndexEnable=false",
        "assumed": [assumed for assumed in layout.assumed if matters(assumed, layout)],
    }
    if check:
        facts["would_compare"] = replaced
    elif to is not None:
        facts["would_write_to"] = to
    else:
        facts["would_replace"] = replaced
    return Summary("Nothing was done: this is what a rebuild would do", facts)


def check_request(
    disk: Disk, root: str, *, to: str | None, check: bool, keep: bool, conf: dict[str, str] | None
) -> None:
    """Refuse what does not go together, or cannot be done here. Raises PipelineError and NotAStoreError."""
    if check and to is not None:
        raise PipelineError("--check changes nothing and --to writes something: give one of them")
    if keep and (check or to is not None):
        raise PipelineError("--keep is for what is replaced, and with --check or --to nothing is")
    survey(disk, root, conf)
    if keep:
        for name in BUILT:
            if disk.stat(kept := os.path.join(root, f"{name}.{KEPT}")) is not None:
                raise PipelineError(
                    f"{kept} is there already, from an earlier rebuild: remove it, or leave out --keep"
                )
    if to is not None:
        found = disk.stat(to)
        if found is not None and not found.is_dir:
            raise PipelineError(f"{to} is a file: --to takes a directory")
        if os.path.realpath(to) == os.path.realpath(root):
            raise PipelineError("--to names the store itself: without --to, what was built takes its place there")
        for name in BUILT:
            if disk.stat(os.path.join(to, name)) is not None:
                raise PipelineError(f"{to} has a {name} already: give --to a directory without")


def settings_in(broker_conf: str | None) -> dict[str, str] | None:
    """The settings in a ``broker.conf``. Raises PipelineError."""
    if broker_conf is None:
        return None
    try:
        with open(broker_conf, encoding="utf-8") as file:
            return parse_conf(file.read())
    except UnicodeDecodeError:
        raise PipelineError(f"{broker_conf} is not a text file in UTF-8: give a broker.conf") from None
    except OSError as error:
        raise PipelineError(f"{broker_conf}: {error.strerror or error}") from error


def matters(assumed: str, layout: Layout) -> bool:
    """True if an unknown setting changes the result."""
    key = assumed.partition("=")[0]
    if key == "mapperFileSizeBatchConsumeQueue":
        return bool(layout.batch_topics)
    if key in {"maxHashSlotNum", "maxIndexNum"}:
        return layout.config.message_index_enable
    return key == "mappedFileSizeConsumeQueue"


def _with_absolute_paths(layout: Layout) -> Layout:
    """Tasks run in directories of their own."""
    directories = ",".join(map(os.path.abspath, layout.config.commit_log_dirs))
    return dataclasses.replace(layout, config=dataclasses.replace(layout.config, store_path_commit_log=directories))


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of this, which takes milliseconds and is better not left in the middle."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _clear(disk: Disk, scratch: str) -> None:
    # A cancelled task may be creating a file at this moment. Brokers ignore leftovers, and the next rebuild removes
    # them.
    with contextlib.suppress(OSError):
        remove_tree(disk, scratch)


def _facts(root: str, built: Built) -> dict[str, Any]:
    return {
        "store": root,
        "records": built.walked.records,
        "log_start": built.walked.log_start,
        "log_end": built.walked.log_end,
        "pieces": built.chunks,
        "queues": built.queues,
        "messages": built.messages,
        "queue_files": built.queue_files,
        "queues_with_gaps": built.queues_put_together,
        "index_files": built.index_files,
        "index_entries": built.index_entries,
    }


def _compared(root: str, built: Built, facts: dict[str, Any], began: float) -> Summary:
    found = compare(root, built.scratch, built.walked.log_start)
    facts |= {
        "files_compared": found.files,
        "differences": len(found.differences),
        "first_differences": found.differences[:MAX_DIFFERENCES],
        "notes": found.notes,
        "seconds": round(time.perf_counter() - began, 3),
    }
    is_same = not found.differences
    title = "Queues and index are what the log says" if is_same else "Queues and index are not what the log says"
    return Summary(title, facts, is_good=is_same)


def _replace(disk: Disk, layout: Layout, built: Built, *, keep: bool) -> None:
    config = layout.config
    built.checkpoint.store(disk, os.path.join(built.scratch, "checkpoint"))
    built.floor.store(disk, built.scratch)
    swap_in(disk, config)
    if keep:
        for name in BUILT:
            old = os.path.join(built.scratch, OLD, name)
            if disk.stat(old) is not None:
                disk.rename(old, config.path(f"{name}.{KEPT}"))
        disk.sync_dir(config.store_path_root_dir)


def _move_out(disk: Disk, scratch: str, to: str) -> None:
    for name in BUILT:
        new = os.path.join(scratch, name)
        if disk.stat(new) is not None:
            disk.rename(new, os.path.join(to, name))
    disk.sync_dir(to)
