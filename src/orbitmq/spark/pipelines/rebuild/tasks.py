"""Parallel tasks on Spark: one function over many items, with progress and cancellation by Ctrl-C."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.progress import JobProgress

T = TypeVar("T")
R = TypeVar("R")

LOOK_SECONDS = 0.2
SLICES_A_CORE = 16
"""Most tasks for each that can run at once: more would only add to what starting them takes."""


class TaskFailedError(PipelineError):
    """A task failed."""


class SparkTasks:
    """Runs tasks in a session."""

    def __init__(self, spark: SparkSession, progress: JobProgress) -> None:
        """Raises PipelineError for a session on another machine, which runs plans and no functions."""
        try:
            self._context: SparkContext = spark.sparkContext
        except Exception as error:
            raise PipelineError(
                "a Spark Connect session cannot rebuild a store: give --master, or a session with its own driver"
            ) from error
        self._progress = progress
        self.parallelism = self._context.defaultParallelism

    def __call__(self, task: Callable[[T], R], items: Sequence[T], doing: str) -> list[R]:
        if not items:
            return []
        context = self._context
        slices = min(len(items), SLICES_A_CORE * self.parallelism)
        group = f"orbitmq-{uuid.uuid4().hex}"
        work = context.parallelize(list(items), slices).mapPartitions(_Each(task))
        results: list[R] = []
        failed: list[BaseException] = []

        def collect() -> None:
            try:
                context.setJobGroup(group, doing, interruptOnCancel=True)
                results.extend(work.collect())
            except BaseException as error:
                failed.append(error)

        # In a thread, so that this one is free to look at how far it is, and to be interrupted.
        thread = threading.Thread(target=collect, name=group, daemon=True)
        with self._progress.step(doing, slices):
            thread.start()
            try:
                while thread.is_alive():
                    thread.join(LOOK_SECONDS)
                    self._progress.at(self._done(group))
            except BaseException:
                context.cancelJobGroup(group)
                thread.join()
                raise
        if failed:
            raise failed[0]
        return results

    def _done(self, group: str) -> int:
        tracker = self._context.statusTracker()
        done = 0
        for job in tracker.getJobIdsForGroup(group):
            job_info = tracker.getJobInfo(job)
            for stage in job_info.stageIds if job_info is not None else ():
                info = tracker.getStageInfo(stage)
                done += info.numCompletedTasks if info is not None else 0
        return done


class _Each:
    """Calls the function for each item of a partition. Errors become text that Spark passes on."""

    def __init__(self, task: Callable[[Any], Any]) -> None:
        self._task = task

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            try:
                yield self._task(item)
            except StoreError as error:
                raise TaskFailedError(str(error)) from error
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                raise TaskFailedError(
                    f"{where}{error.strerror or error}; every machine of Spark must reach the store by this path"
                ) from error
