"""Waiting for Spark so that Ctrl-C ends the wait with one sentence and without a stack trace.

Ctrl-C reaches this process only: PySpark starts the JVM with SIGINT ignored, and the JVM's Python processes are a
process group of their own. Two things are done here about what would be printed otherwise:

- PySpark's own handler cancels all jobs on the connection that is being read, and logs an error. So responses are
  read, and jobs are cancelled, in other threads.
- A Spark that has started by half cannot be stopped. So it starts in another thread, and is stopped after that.

What Spark's processes write goes to the job's log file (``spark_log``).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

CANCEL_SECONDS = 5.0
END_SECONDS = 15.0
"""The time that cancelled jobs have to end."""
_POLL_SECONDS = 0.5


def run_in_thread(
    work: Callable[[], T], thread: Callable[..., threading.Thread] = threading.Thread
) -> concurrent.futures.Future[T]:
    """Call a function in a daemon thread of its own."""
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    thread(target=run, name="orbitmq-pipeline", daemon=True).start()
    return result


def interruptible(work: Callable[[], T], cancel: Callable[[], object] | None = None) -> T:
    """Call a function that waits for Spark. At Ctrl-C cancel it, and raise KeyboardInterrupt when it has ended.

    ``cancel`` ends the work, if it is not enough to cancel all jobs.
    """
    from pyspark import InheritableThread  # noqa: PLC0415 - Spark may not be installed
    from pyspark.sql import is_remote  # noqa: PLC0415

    result = run_in_thread(work, threading.Thread if is_remote() else InheritableThread)
    try:
        return result.result()
    except KeyboardInterrupt:
        until = time.monotonic() + END_SECONDS
        while not result.done() and time.monotonic() < until:
            # More than once: a query that is still being planned has no job yet.
            concurrent.futures.wait([run_in_thread(cancel or cancel_all_jobs)], CANCEL_SECONDS)
            concurrent.futures.wait([result], _POLL_SECONDS)
        raise


def cancel_all_jobs() -> None:
    """Cancel the jobs of this process's session, if there is one."""
    from pyspark import SparkContext  # noqa: PLC0415

    if (context := SparkContext._active_spark_context) is not None:
        context.cancelAllJobs()


@contextlib.contextmanager
def cancelling() -> Iterator[None]:
    """At Ctrl-C cancel all jobs and raise KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(*_: object) -> None:
        concurrent.futures.wait([run_in_thread(cancel_all_jobs)], CANCEL_SECONDS)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
