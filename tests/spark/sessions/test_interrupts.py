"""Ctrl-C ends a job with one sentence: what Spark and PySpark print goes to the log file of the job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.pipelines.interruptible import cancelling, uninterrupted
from orbitmq.spark.pipelines.spark_log import MAX_FILES, SparkLog

if TYPE_CHECKING:
    from pathlib import Path

WAITING_FOR_A_JVM = """
import signal, socket, threading, time
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from orbitmq.spark.pipelines.spark_job import quiet_pyspark

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
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "orbitmq" / "spark"


def test_what_spark_writes_goes_to_a_file_and_not_to_the_terminal(
    state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = SparkLog("audit")
    subprocess.run(["sh", "-c", "echo BrokenPipeError >&2"], check=True, stderr=log.descriptor)
    log.close()
    log.remove_if_empty()
    assert log.has_stack
    assert [path.read_text() for path in state.iterdir()] == ["BrokenPipeError\n"]
    assert capfd.readouterr().err == ""


def test_a_log_without_a_line_is_removed_and_only_the_newest_are_kept(state: Path) -> None:
    for number in range(MAX_FILES + 5):
        log = SparkLog(f"job {number}")
        os.write(log.descriptor, b"x")
        log.close()
        os.utime(log.path, (number, number))
    empty = SparkLog("empty")
    empty.close()
    empty.remove_if_empty()
    names = sorted(int(path.name.split("-")[1]) for path in state.iterdir())
    assert names == list(range(5, MAX_FILES + 5))


def test_ctrl_c_is_raised_once_and_the_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), cancelling():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_uninterrupted_goes_on() -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(cancelling())
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_answer_that_is_not_waited_for_any_more_is_no_news() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITING_FOR_A_JVM], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
