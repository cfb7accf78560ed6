"""Work of Spark that can be watched and interrupted: it runs beside the thread that waits for Ctrl-C."""

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orbitmq.spark.pipelines.telling import is_watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.telling import Telling

T = TypeVar("T")

LOOK_SECONDS = 0.2


class _Result(Generic[T]):
    """What a thread came to."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self.error: BaseException | None = None


def run_interruptibly(spark: "SparkSession", telling: "Telling", text: str, work: Callable[[], T]) -> T:
    """Do it, tell how far it is, and cancel Spark's jobs at Ctrl-C, which is raised when they have ended."""
    result: _Result[T] = _Result()

    def run() -> None:
        try:
            result.values.append(work())
        except BaseException as error:  # raised in the other thread
            result.error = error

    thread = threading.Thread(target=run, name="query", daemon=True)
    with telling.step(text):
        thread.start()
        try:
            while thread.is_alive():
                thread.join(LOOK_SECONDS)
                done, of = _tasks(spark)
                # A line that stays has the number at its end; one that is drawn does not.
                said = f"{text}: {done:,} of {of:,} tasks" if is_watched() else f"{text}, tasks done of {of:,}"
                telling.at(done, said if of else None)
        except KeyboardInterrupt:
            _cancel(spark, thread)
            raise
    if result.error is not None:
        raise result.error
    return result.values[0]


def _cancel(spark: "SparkSession", thread: threading.Thread) -> None:
    """Until it has ended: what is only being planned has no job yet."""
    while thread.is_alive():
        with contextlib.suppress(Exception):
            spark.sparkContext.cancelAllJobs()
        with contextlib.suppress(KeyboardInterrupt):
            thread.join(LOOK_SECONDS)


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    """How many tasks of what runs are done, and of how many."""
    done = of = 0
    with contextlib.suppress(Exception):
        tracker: Any = spark.sparkContext.statusTracker()
        for job in tracker.getActiveJobsIds():
            found = tracker.getJobInfo(job)
            for stage in found.stageIds if found is not None else ():
                if (info := tracker.getStageInfo(stage)) is not None:
                    done, of = done + info.numCompletedTasks, of + info.numTasks
    return done, of
