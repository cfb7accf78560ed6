"""Waiting for Spark in a way that Ctrl-C ends quietly.

Whoever presses it is to read our sentence, and no stack trace. Ctrl-C comes to this process only: PySpark starts
the JVM with that signal ignored, and the JVM's Python processes are a group of their own. So all that would be told
at length is told because of what this process does about it:

- PySpark cancels all jobs. While an answer of the JVM is read it would have to use the same connection, and tells
  that it cannot. So answers are read, and jobs are cancelled, in other threads.
- Python processes that are cut off write to a closed connection, and the JVM tells of each job that failed. All of
  them speak through the JVM's standard error, which is read here and passed on, until Ctrl-C.
- Half a Spark cannot be stopped. So it starts in another thread, and is stopped when that has come to its end.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

CANCELLING_SECONDS = 5.0
ENDING_SECONDS = 15.0
"""How long jobs that are cancelled may take to end."""
_LOOK_SECONDS = 0.5
_STDERR = 2
_MOST_BYTES = 1 << 16


def apart(
    work: Callable[[], T], thread: Callable[..., threading.Thread] = threading.Thread
) -> concurrent.futures.Future[T]:
    """Do it in a thread of its own, which this process does not wait for when it ends."""
    answer: concurrent.futures.Future[T] = concurrent.futures.Future()

    def answering() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    thread(target=answering, name="orbitmq-pipeline", daemon=True).start()
    return answer


def interruptible(work: Callable[[], T], cancel: Callable[[], object] | None = None) -> T:
    """Do what waits for Spark. Raises whatever it raises, and KeyboardInterrupt when that has ended it.

    ``cancel`` is what ends it, if that is not to cancel all jobs.
    """
    from pyspark import InheritableThread  # noqa: PLC0415 - Spark may not be installed
    from pyspark.sql import is_remote  # noqa: PLC0415

    answer = apart(work, threading.Thread if is_remote() else InheritableThread)
    try:
        return answer.result()
    except KeyboardInterrupt:
        until = time.monotonic() + ENDING_SECONDS
        while not answer.done() and time.monotonic() < until:
            # Again and again: what is only being planned has no job yet.
            concurrent.futures.wait([apart(cancel or cancel_all_jobs)], CANCELLING_SECONDS)
            concurrent.futures.wait([answer], _LOOK_SECONDS)
        raise


def cancel_all_jobs() -> None:
    """Of the session of this process, if it has one."""
    from pyspark import SparkContext  # noqa: PLC0415

    if (context := SparkContext._active_spark_context) is not None:
        context.cancelAllJobs()


@contextlib.contextmanager
def cancelling(hush: Callable[[], None]) -> Iterator[None]:
    """At Ctrl-C call ``hush``, cancel all jobs and raise KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(*_: object) -> None:
        hush()
        concurrent.futures.wait([apart(cancel_all_jobs)], CANCELLING_SECONDS)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C has no effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class SparkWords:
    """What Spark's processes say on standard error, as far as anybody wants to hear it.

    ``file`` is for the JVM to write to, until ``close``; None where its words do not come to where ours go.
    """

    def __init__(self) -> None:
        self._is_heard = True
        self.file: int | None = None
        if _says_the_same():
            reading, self.file = os.pipe()
            threading.Thread(target=self._pass_on, args=[reading], name="spark-words", daemon=True).start()

    def hush(self) -> None:
        """From now on nobody hears it."""
        self._is_heard = False

    def close(self) -> None:
        """The JVM has it now, or will never have it."""
        if self.file is not None:
            os.close(self.file)
            self.file = None

    def _pass_on(self, reading: int) -> None:
        with open(reading, "rb", buffering=0) as words:
            while said := words.read(_MOST_BYTES):
                if self._is_heard:
                    with contextlib.suppress(OSError):
                        os.write(_STDERR, said)


def _says_the_same() -> bool:
    """Whether what a new process says on standard error comes to where this one's words go."""
    try:
        return os.path.sameopenfile(_STDERR, sys.stderr.fileno())
    except (OSError, ValueError):
        return False
