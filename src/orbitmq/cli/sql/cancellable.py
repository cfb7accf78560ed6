"""A Spark action in a thread of its own, so that the main thread shows its progress and handles Ctrl-C."""

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orbitmq.spark.pipelines.progress import is_watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.progress import JobProgress

T = TypeVar("T")

POLL_SECONDS = 0.2


class _Result(Generic[T]):
    """The result or the error of a thread."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self.error: BaseException | None = None


def run_interruptibly(spark: "SparkSession", progress: "JobProgress", text: str, work: Callable[[], T]) -> T:
    """Call a function, show the progress of its tasks, and cancel Spark's jobs at Ctrl-C before that is raised."""
    result: _Result[T] = _Result()

    def run() -> None:
        try:
            result.values.append(work())
        except BaseException as error:  # raised in the other thread
            result.error = error

    thread = threading.Thread(target=run, name="query", daemon=True)
    with progress.step(text):
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_SECONDS)
                done, of = _tasks(spark)
                # A printed line gets the number at its end; a drawn bar has it already.
                line = f"{text}: {done:,} of {of:,} tasks" if is_watched() else f"{text}, tasks done of {of:,}"
                progress.at(done, line if of else None)
        except KeyboardInterrupt:
            _cancel(spark, thread)
            raise
    if result.error is not None:
        raise result.error
    return result.values[0]


def _cancel(spark: "SparkSession", thread: threading.Thread) -> None:
    """Cancel jobs until the thread has ended: a query that is still being planned has no job yet."""
    while thread.is_alive():
        with contextlib.suppress(Exception):
            spark.sparkContext.cancelAllJobs()
        with contextlib.suppress(KeyboardInterrupt):
            thread.join(POLL_SECONDS)


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    """The finished tasks and all tasks of the active jobs."""
    done = of = 0
    with contextlib.suppress(Exception):
        tracker: Any = spark.sparkContext.statusTracker()
        for job in tracker.getActiveJobsIds():
            found = tracker.getJobInfo(job)
            for stage in found.stageIds if found is not None else ():
                if (info := tracker.getStageInfo(stage)) is not None:
                    done, of = done + info.numCompletedTasks, of + info.numTasks
    return done, of
