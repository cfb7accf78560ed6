"""Harness of the archive tests: the job as a process of its own, and the contents of an archive."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from orbitmq import Message, Producer
from orbitmq.client.errors import BrokerError, SendError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.pipelines.archive.directory import Archive
from peers.process import PeerProcess
from support.cli.command import WIDTH
from support.spark.spark_harness import spark_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

BATCH = 100
PATIENCE = 900.0 if os.environ.get("ORBITMQ_LONG") else 240.0
_POLL = 0.1


class PipelineProcess(PeerProcess):
    """``orbitmq pipeline`` with a verb, running."""

    def __init__(self, home: Path, verb: str, *arguments: object) -> None:
        home.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "orbitmq", "pipeline", verb, *arguments]
        super().__init__(
            f"orbitmq pipeline {verb}",
            [str(part) for part in command],
            home=home,
            environment={**WIDTH, **spark_environment(home)},
        )

    def interrupt(self) -> int:
        """Ctrl-C: its exit code."""
        os.killpg(self.pid, signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end: its exit code."""
        code = self._process.wait(PATIENCE)
        self.kill()
        return code

    def kill_driver(self) -> None:
        """End the program with SIGKILL; its Spark notices a moment later, and is ended only then."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()


class Sending(threading.Thread):
    """Sends numbered messages to topics in turn, while a test does something else."""

    def __init__(self, nameserver: str, topics: Sequence[str], messages: int, seconds: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._nameserver = nameserver
        self._topics = topics
        self._messages = messages
        self._pause = seconds * BATCH / messages
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            # One attempt each: what is given up may have been stored all the same, and would be there twice.
            with Producer(
                self._nameserver, group="senders", send_msg_timeout=PATIENCE, retry_times_when_send_failed=0
            ) as producer:
                for start in range(0, self._messages, BATCH):
                    topic = self._topics[start // BATCH % len(self._topics)]
                    numbers = range(start, min(start + BATCH, self._messages))
                    self._send(
                        producer,
                        [Message(topic, f"{number:08d}".ljust(100, "."), keys=f"k{number}") for number in numbers],
                    )
                    time.sleep(self._pause)
        except BaseException as error:
            self.error = error
            raise

    def _send(self, producer: Producer, messages: list[Message]) -> None:
        """Send a batch, for as long as the broker says that it has too much to do: then it has stored nothing."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                producer.send_batch(messages)
            except SendError as error:
                refused = error.__cause__
                is_busy = isinstance(refused, BrokerError) and refused.code == ResponseCode.SYSTEM_BUSY
                if not is_busy or time.monotonic() > until:
                    raise
                time.sleep(_POLL)
            else:
                return

    def goes_on(self) -> bool:
        """True. It fails if something went wrong, for then nothing comes that could be waited for."""
        assert self.error is None, self.error
        return True

    def finished(self) -> None:
        self.join(PATIENCE)
        assert self.goes_on()
        assert not self.is_alive()


def numbers_by_pyarrow(directory: str | os.PathLike[str]) -> list[int]:
    """The numbers that the messages of an archive have, read from the files that its segments name."""
    archive = Archive.existing(str(directory))
    found: list[int] = []
    for file in archive.archived_files():
        table = pq.read_table(archive.within(file.path), columns=["body"], partitioning=None)
        assert table.num_rows == file.rows
        found += [int(body[:8]) for body in table.column("body").to_pylist()]
    return found


def counts_by_spark(spark: SparkSession, directory: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Rows, different places in queues, and different bodies."""
    rows = Archive.existing(str(directory)).read(spark)
    found = rows.selectExpr(
        "count(*)", "count(distinct topic, broker, queue_id, queue_offset)", "count(distinct substr(body, 1, 8))"
    ).first()
    assert found is not None
    return found[0], found[1], found[2]


def files_without_a_segment(directory: Path) -> list[str]:
    """Parquet files that belong to no segment."""
    named = {file.path for file in Archive.existing(str(directory)).archived_files()}
    found = {str(path.relative_to(directory)) for path in directory.rglob("*.parquet")}
    return sorted(found - named)


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Poll until something holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"not {what} within {PATIENCE:g} s"
        time.sleep(_POLL)
