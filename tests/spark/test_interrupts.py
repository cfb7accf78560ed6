"""Ctrl-C is answered by our sentence only: nobody hears what Spark says of it, or sees what PySpark logs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from archive_ends import wait_for
from orbitmq.spark.pipelines.interruptible import SparkWords, cancelling, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator

WAITING_FOR_A_JVM = """
import signal, socket, threading, time
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from orbitmq.spark.pipelines.running import quiet_pyspark

def answer_nothing(listening):
    kept = []
    while True:
        kept.append(listening.accept())
        if len(kept) == 1:
            kept[0][0].recv(1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

listening = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=answer_nothing, args=[listening], daemon=True).start()
quiet_pyspark()
ends = JavaParameters(port=listening.getsockname()[1]), PythonParameters(port=0, eager_load=False)
gateway = ClientServer(*ends)
try:
    gateway.jvm.java.lang.System.currentTimeMillis()
except KeyboardInterrupt:
    print("interrupted")
"""
"""A program that asks for an answer which never comes, and is interrupted."""


@pytest.fixture
def words(capfd: pytest.CaptureFixture[str]) -> Iterator[SparkWords]:
    made = SparkWords()
    yield made
    made.close()


def test_what_spark_says_is_heard_until_it_is_hushed(words: SparkWords, capfd: pytest.CaptureFixture[str]) -> None:
    assert words.file is not None
    heard: list[str] = []

    def is_heard() -> bool:
        heard.append(capfd.readouterr().err)
        return any(heard)

    os.write(words.file, b"[Stage 0:>\r")
    wait_for(is_heard, "heard")
    words.hush()
    os.write(words.file, b"BrokenPipeError\n")
    os.write(words.file, b"." * (1 << 18))  # more than a pipe holds: it is still read
    assert "".join(heard) + capfd.readouterr().err == "[Stage 0:>\r"


def test_words_that_go_elsewhere_are_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    before = os.dup(2)
    with open(os.devnull, "wb") as nobody:
        os.dup2(nobody.fileno(), 2)
        try:
            words = SparkWords()
        finally:
            os.dup2(before, 2)
            os.close(before)
    assert words.file is None


def test_ctrl_c_hushes_spark_first_and_is_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), cancelling(lambda: told.append("hushed")):
        signal.raise_signal(signal.SIGINT)
    assert told == ["hushed"]
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_uninterrupted_goes_on() -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(cancelling(lambda: None))
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_answer_that_is_not_waited_for_any_more_is_no_news() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITING_FOR_A_JVM], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
