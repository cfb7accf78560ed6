"""Waiting for Spark in a way that Ctrl-C ends quietly.

PySpark cancels all jobs when Ctrl-C comes. While an answer of the JVM is read it would have to use the same
connection, and tells at length that it cannot. So the answer is read in another thread.
"""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ENDING_SECONDS = 15.0
"""How long jobs that are cancelled may take to end."""


def interruptible(work: Callable[[], T]) -> T:
    """Do what waits for Spark. Raises whatever it raises, and KeyboardInterrupt when its jobs have ended."""
    from pyspark import InheritableThread  # noqa: PLC0415 - Spark may not be installed

    answer: concurrent.futures.Future[T] = concurrent.futures.Future()

    def answering() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    thread = InheritableThread(target=answering, name="orbitmq-pipeline", daemon=True)
    thread.start()
    try:
        return answer.result()
    except KeyboardInterrupt:
        thread.join(ENDING_SECONDS)
        raise
