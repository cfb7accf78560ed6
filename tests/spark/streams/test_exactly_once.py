"""Copies of a topic by streaming queries whose parts are killed: nothing is missing in them, and nothing twice.

``make spark-soak`` kills more often. What is killed and when is drawn by a seed, which is logged; where exactly it
hits a query is a matter of chance.
"""

from __future__ import annotations

import enum
import json
import logging
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.topic_source.dedup import deduplicated
from support.paths import TESTS
from support.spark.spark_harness import standalone_cluster
from support.spark.stream_faults import Driver, MortalServer, Writing, ancestor, kill, wait_for
from support.spark.topic_copies import Copies, differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

COPYING = Path(__file__).with_name("copying_program.py")
SLOW_WRITE = Path(__file__).with_name("slow_write_program.py")
KILLS = int(os.environ.get("ORBITMQ_KILLS", "3"))
SEED = int(os.environ.get("ORBITMQ_SEED", "0")) or random.randrange(1, 1 << 32)
LIMIT = 400
"""Messages of a batch: small, so that a query is nearly always in the middle of one."""
LAST_LIMIT = 20_000


class Fault(enum.Enum):
    DRIVER = "the driver and its JVM"
    MACHINE = "the driver, its JVM and all Python processes of Spark"
    WORKER = "a Python process that runs tasks"
    PLANNER = "the Python process that plans the batches of a query"
    BROKER = "the name server and the broker"
    ALL = "everything"


SURVIVED = {Fault.WORKER, Fault.BROKER}
"""After which a driver goes on by itself."""


def drawn(rng: random.Random) -> list[Fault]:
    """One of the usual ones each; more if there are to be more."""
    usual = [Fault.DRIVER, Fault.WORKER, Fault.BROKER]
    faults = [*usual, *rng.choices(list(Fault), k=max(KILLS - len(usual), 0))][:KILLS]
    rng.shuffle(faults)
    return faults


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MortalServer]:
    server = MortalServer(tmp_path / "server")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def writing(server: MortalServer) -> Iterator[Writing]:
    writing = Writing(server.nameserver, "numbers", at_once=25, pause=0.05)
    yield writing
    writing.stop()


@pytest.fixture
def driver(server: MortalServer, tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(
        tmp_path / "driver",
        COPYING,
        *(server.nameserver, "numbers", tmp_path, LIMIT),
        environment={"PYTHONPATH": str(TESTS)},
    )
    yield driver
    driver.end()


def go_on(driver: Driver, copies: Copies) -> None:
    """Wait until each query has finished another batch."""
    before = copies.batches()
    driver.wait_for(
        lambda: all(now > then for now, then in zip(copies.batches(), before, strict=True)),
        f"each query further than {before}",
    )


def inflict(fault: Fault, server: MortalServer, driver: Driver, rng: random.Random) -> None:
    """Kill something, and start it again."""
    if fault is Fault.BROKER:
        server.kill()
        time.sleep(rng.uniform(0, 2))
        server.start()
    elif fault is Fault.ALL:
        server.kill()
        driver.kill_all()
        server.start()
    elif fault is Fault.WORKER:
        kill(rng.choice(sorted(driver.pythons("pyspark.worker"))))
    elif fault is Fault.PLANNER:
        kill(rng.choice(sorted(driver.pythons("pyspark.sql.streaming.python_streaming_source_runner"))))
        wait_for(lambda: not driver.running, "ended with its query")
    elif fault is Fault.DRIVER:
        driver.kill()
    else:
        driver.kill_all()
    if fault not in SURVIVED:
        driver.start()


@pytest.mark.timeout(300 + 90 * KILLS)
def test_copies_made_under_faults_have_every_message_once(
    spark: SparkSession,
    server: MortalServer,
    writing: Writing,
    driver: Driver,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, __name__)
    log.info("ORBITMQ_SEED=%d ORBITMQ_KILLS=%d", SEED, KILLS)
    rng = random.Random(SEED)
    copies = Copies(spark, server.nameserver, "numbers", tmp_path)
    writing.start()
    driver.start()
    for fault in drawn(rng):
        go_on(driver, copies)
        time.sleep(rng.uniform(0, 1))
        log.info("%s batches are done; now %s is killed", copies.batches(), fault.value)
        inflict(fault, server, driver, rng)
    go_on(driver, copies)
    writing.stop()
    driver.kill()
    driver.wait_until_alone()

    for query in copies.start(LAST_LIMIT, is_last=True):
        assert query.awaitTermination(120), query.status
    source, copy = copies.source().cache(), copies.copy().cache()
    log.info("%d messages were copied in %s batches", source.count(), copies.batches())
    assert source.count() >= writing.written > 0
    assert differences(source, copies.files(), ["queue_id", "queue_offset", "unique_id", "body", "tags"]) == (0, 0)
    missing, too_many = differences(source, copy, ["body", "tags", "keys"])
    # If something was written twice, its id may tell how it came to that.
    assert (missing, too_many) == (0, 0), f"{copy.count() - deduplicated(copy).count()} have the ids of others"


# A batch write


@pytest.mark.usefixtures("java_and_pyspark")
@pytest.mark.timeout(400)  # six JVMs start
def test_a_task_whose_executor_is_killed_is_done_elsewhere_and_writes_each_row_once(
    server: MortalServer, tmp_path: Path
) -> None:
    rows = 2000
    with standalone_cluster(tmp_path) as master:
        driver = Driver(
            tmp_path / "driver",
            SLOW_WRITE,
            *(master, server.nameserver, "slow", rows, tmp_path),
            environment={"PYSPARK_PYTHON": sys.executable},
        )
        driver.start()
        try:
            # It has sent several chunks by then, and has as many to send.
            driver.wait_for(lambda: list(tmp_path.glob("task-0-0-*-8")), "task 0 in the middle of its rows")
            (reached,) = tmp_path.glob("task-0-0-*-8")
            worker = int(reached.name.split("-")[3])
            kill(ancestor(worker, "CoarseGrainedExecutorBackend"))
            wait_for(lambda: not driver.running, "finished")
            assert (tmp_path / "found.json").exists(), driver.output
        finally:
            driver.end()
    # The second attempt was made by another process.
    assert len({path.name.split("-")[3] for path in tmp_path.glob("task-0-[1-9]-*")}) == 1
    assert json.loads((tmp_path / "found.json").read_text()) == [rows, rows, rows, sum(range(rows))]
