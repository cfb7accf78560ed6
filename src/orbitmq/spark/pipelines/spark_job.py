"""The Spark session of one job, from its start to its end. Its errors become one sentence each."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import re
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.spark.errors import OptionError, SparkSourceError
from orbitmq.spark.pipelines.interruptible import cancelling, run_in_thread, uninterrupted
from orbitmq.spark.pipelines.spark_log import SparkLog
from orbitmq.spark.sessions.session import PROGRESS, session_with, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.progress import JobProgress

MAX_SENTENCE = 500
"""Characters of an error that are printed."""
_OWN_ERROR = re.compile(r"orbitmq\.[\w.]*Error: (.+)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\.?\s*SQLSTATE: \w+.*$")
STOP_SECONDS = 60.0
"""The time that Spark has to stop. The rest of it ends with this process."""


class PipelineError(OrbitMQError):
    """A pipeline cannot do what it was started for. The message is one sentence."""

    is_input_error = False
    """The user's own text is wrong, and Spark's log has nothing to add."""


@contextlib.contextmanager
def spark_job(
    name: str,
    progress: JobProgress,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    log_path: str | None = None,
) -> Iterator[SparkSession]:
    """A Spark session for one job, which ends with it. Errors of Spark are raised as OrbitMQError.

    Spark's own output goes to a log file (``log_path``, or a new one in the folder of logs). Its path is printed if
    Spark fails.
    """
    if (reason := unavailable()) is not None:
        raise SparkSourceError(reason)
    quiet_pyspark()
    # A bar that Spark draws would go to the log file.
    settings = {PROGRESS: "false", **(conf or {})}
    log = SparkLog(name, log_path)

    def start() -> SparkSession:
        try:
            return session_with(f"orbitmq {name}", master, settings, stderr=log.descriptor)
        finally:
            log.close()

    try:
        with cancelling(), spark_errors():
            starting = run_in_thread(start)
            try:
                with progress.step("Spark starts"):
                    spark = starting.result()
                yield spark
            finally:
                # A second Ctrl-C while Spark ends its jobs would leave its processes behind.
                with uninterrupted():
                    concurrent.futures.wait([run_in_thread(lambda: starting.result().stop())], STOP_SECONDS)
    except PipelineError as error:
        if log.has_stack and not error.is_input_error:
            progress.say(f"Spark's own log is {log.path}")
        raise
    finally:
        log.remove_if_empty()


def quiet_pyspark() -> None:
    """Keep from the terminal the errors that PySpark logs as well as raises."""
    logging.getLogger("SQLQueryContextLogger").disabled = True
    # Py4J logs KeyboardInterrupt and lost connections partly with its own loggers and partly with the root logger,
    # which gives the root a handler.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return os.path.basename(os.path.dirname(record.pathname)) != "py4j"


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Raise Spark's exceptions as PipelineError, with the sentence that says what to do."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark may not be installed
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(sentence_of(error)) from error


def sentence_of(error: BaseException) -> str:
    """The sentence in an error of Spark: that of an OrbitMQError in it, otherwise its first line."""
    text = str(error)
    if own := _OWN_ERROR.findall(text):
        return str(own[-1]).strip()[:MAX_SENTENCE]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _STATE.sub("", _CONDITION.sub("", lines[0] if lines else type(error).__name__))[:MAX_SENTENCE]


def settings_of(given: Sequence[str]) -> dict[str, str]:
    """Spark's settings from ``name=value`` texts. Raises OptionError."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise OptionError(f"{text!r} is not a setting of Spark: write spark.name=value")
        found[name] = value
    return found
