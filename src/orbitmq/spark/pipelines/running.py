"""A job's Spark: started with what the command was told, stopped at the end, and its errors as one sentence."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import re
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.spark.errors import OptionError, SparkSourceError
from orbitmq.spark.pipelines.interruptible import SparkWords, apart, cancelling, uninterrupted
from orbitmq.spark.spark_session import session_with, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.telling import Telling

LONGEST = 500
_OURS = re.compile(r"orbitmq\.[\w.]*Error: (.+)")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\.?\s*SQLSTATE: \w+.*$")
STOPPING_SECONDS = 60.0
"""How long Spark may take to stop. What is left of it ends when this process does."""


class PipelineError(OrbitMQError):
    """A pipeline cannot do what it is asked for. The message is one sentence."""


@contextlib.contextmanager
def spark_job(
    name: str, telling: Telling, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark session for one job, which ends with it. What goes wrong is raised as OrbitMQError."""
    if (reason := unavailable()) is not None:
        raise SparkSourceError(reason)
    quiet_pyspark()
    words = SparkWords()

    def start() -> SparkSession:
        try:
            return session_with(f"orbitmq {name}", master, conf or {}, stderr=words.file)
        finally:
            words.close()

    with cancelling(words.hush), spark_errors():
        starting = apart(start)
        try:
            with telling.step("Spark starts"):
                spark = starting.result()
            yield spark
        finally:
            # What is said from here on is about connections that are cut off, and nothing is wrong with that.
            words.hush()
            # A second Ctrl-C while Spark ends its jobs would leave its processes behind.
            with uninterrupted():
                concurrent.futures.wait([apart(lambda: starting.result().stop())], STOPPING_SECONDS)


def quiet_pyspark() -> None:
    """Keep from the terminal the errors that PySpark also raises."""
    logging.getLogger("SQLQueryContextLogger").disabled = True
    # Py4J tells of KeyboardInterrupt and of lost connections in part with its own loggers, in part with the root's,
    # which makes the root have a handler.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return os.path.basename(os.path.dirname(record.pathname)) != "py4j"


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Spark's exceptions become ours, with the sentence that says what to do."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark may not be installed
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(sentence_of(error)) from error


def sentence_of(error: BaseException) -> str:
    """What an error of Spark comes down to: our own words where they are in it, otherwise the first line of its."""
    text = str(error)
    if ours := _OURS.findall(text):
        return str(ours[-1]).strip()[:LONGEST]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _STATE.sub("", _CONDITION.sub("", lines[0] if lines else type(error).__name__))[:LONGEST]


def settings_of(given: Sequence[str]) -> dict[str, str]:
    """Spark's settings from ``name=value`` texts. Raises OptionError."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise OptionError(f"{text!r} is no setting of Spark: write spark.name=value")
        found[name] = value
    return found
