"""A store is rebuilt by Spark: in a session, on a cluster of processes, interrupted, and with wrong input."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.pipelines.progress import silent
from orbitmq.spark.pipelines.rebuild.job import rebuild
from orbitmq.spark.pipelines.rebuild.tasks import SparkTasks
from orbitmq.spark.pipelines.spark_job import PipelineError, spark_errors
from orbitmq.store.consumequeue.ext import is_ext_address
from orbitmq.store.tools.rebuild import SCRATCH
from peers.process import RUNNING, PeerProcess
from support.cli.command import WIDTH
from support.cli.documentation import ROOT, examples_of
from support.spark.rebuild_harness import QUEUES, derived, rebuilt_by_broker
from support.spark.spark_harness import run_program, spark_environment, standalone_cluster
from support.store import golden
from support.store.stores import edit_log, open_small, read_all, send, tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = {"maxHashSlotNum": "50", "maxIndexNum": "100", "mappedFileSizeConsumeQueue": "200"}
PATIENCE = 240.0


def conf_file(home: Path, settings: dict[str, str]) -> str:
    path = home / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
    return str(path)


def index_of(root: str | Path) -> list[bytes]:
    return [contents for _, contents in sorted(tree(root, "index").items())]


# In the session of this ring


@pytest.mark.parametrize("name", ["basic", "extra"])
def test_a_session_builds_byte_for_byte_what_apache_has_written(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    root = golden.unpack(name, tmp_path)
    before, index = tree(root, *QUEUES), index_of(root)
    for folder in QUEUES:
        shutil.rmtree(os.path.join(root, folder), ignore_errors=True)
    summary = rebuild(
        spark, root, broker_conf=conf_file(tmp_path, golden.config(name)), chunk_bytes=50_000, keep=True
    )
    assert summary.is_good
    assert summary.facts["pieces"] > 4
    after = tree(root, *QUEUES)
    assert after.keys() == before.keys()
    for path, contents in before.items():
        if not is_ext_address(int.from_bytes(contents[12:20], "big", signed=True)):
            assert after[path] == contents, path
    assert index_of(root) == index
    assert sorted(os.listdir(os.path.join(root, "index.before-rebuild")))


def test_a_session_builds_what_the_broker_builds_and_finds_no_difference(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_small(tmp_path / "store") as store:
        for number in range(400):
            send(store, queue_id=number % 5, size=number % 300, KEYS=f"key{number} of", TAGS=f"tag{number % 3}")
            if number == 200:
                store.delete_topic("TopicA")
    conf = conf_file(tmp_path, CONF)
    shutil.copytree(tmp_path / "store", tmp_path / "beside")
    rebuilt_by_broker(tmp_path / "beside", CONF)
    summary = rebuild(spark, str(tmp_path / "store"), broker_conf=conf, chunk_bytes=3000)
    assert summary.facts["queues_with_gaps"] == 0  # records of the deleted topic are left out
    assert derived(tmp_path / "store") == derived(tmp_path / "beside")
    assert rebuild(spark, str(tmp_path / "store"), check=True).is_good
    rebuild(spark, str(tmp_path / "store"), to=str(tmp_path / "out"))
    assert tree(tmp_path / "out", *QUEUES) == tree(tmp_path / "store", *QUEUES)
    with open_small(tmp_path / "store") as store:
        assert len(read_all(store, queue_id=1)) == 40


def test_damage_and_failures_of_tasks_are_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 60, size=100)
    before = tree(tmp_path, *QUEUES, "index")
    edit_log(tmp_path, offsets[7] + 90, b"?")
    with pytest.raises(PipelineError, match=rf"damaged at offset {offsets[7]} \(the body fails its CRC\)"):
        rebuild(spark, str(tmp_path), broker_conf=conf_file(tmp_path, CONF))
    assert tree(tmp_path, *QUEUES, "index") == before
    assert not (tmp_path / SCRATCH).exists()
    with pytest.raises(PipelineError) as caught, spark_errors():
        SparkTasks(spark, silent())(os.listdir, [str(tmp_path / "elsewhere")], "a directory is listed")
    sentence = "No such file or directory; every machine of Spark must reach the store by this path"
    assert str(caught.value) == f"{tmp_path / 'elsewhere'}: {sentence}"


def test_the_example_of_the_document_runs(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, object] = {"spark": spark, "store": golden.unpack("ipv6", tmp_path)}
    examples = list(examples_of(ROOT / "docs" / "pipeline-rebuild.md"))
    assert examples
    for example in examples:
        exec(compile(example.code, str(example), "exec", dont_inherit=True), names)


# As a command


@pytest.mark.usefixtures("java_and_pyspark")
@pytest.mark.skipif(not os.environ.get("ORBITMQ_LONG"), reason="one cluster is enough without ORBITMQ_LONG=1")
@pytest.mark.timeout(400)  # six JVMs start
def test_a_standalone_cluster_rebuilds_a_store(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    queues, index = tree(root, *QUEUES), index_of(root)
    home = tmp_path / "driver"
    home.mkdir()
    small = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
    with standalone_cluster(tmp_path) as master:
        ran = run_program(
            Path("-m"),
            home,
            *("orbitmq", "pipeline", "rebuild", root, "--master", master, *small, "--json"),
            PYSPARK_PYTHON=sys.executable,
        )
    assert ran.code == 0, ran.err
    assert (ran.json["good"], ran.json["records"], ran.json["queues"]) == (True, 2998, 45)
    assert "the log is read" in ran.err
    assert (tree(root, *QUEUES), index_of(root)) == (queues, index)
    # Both workers have had an executor.
    assert [len(list(folder.glob("work/app-*/*"))) for folder in sorted(tmp_path.glob("worker-*"))] == [1, 1]


@pytest.mark.usefixtures("java_and_pyspark")
@pytest.mark.timeout(400)
def test_a_job_that_is_interrupted_leaves_the_store_and_can_be_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = golden.unpack("basic", tmp_path)
    before = tree(root, ".")
    home = tmp_path / "job"
    home.mkdir()
    job = _Job(home, root)
    reported = home / "console.log"
    # Its first task waits for a Python that is only being started.
    job.wait_until(lambda: "the log is read" in reported.read_text(), what="reading", seconds=PATIENCE)
    code = job.interrupt()
    message = reported.read_text()
    assert code == 130, message
    assert "orbitmq: interrupted: the store is as it was; run the same command again" in message
    assert "Traceback" not in message
    assert tree(root, ".") == before
    until = time.monotonic() + PATIENCE
    while _of(home):
        assert time.monotonic() < until, f"left behind: {_of(home)}"
        time.sleep(0.1)
    assert rebuild(spark, root).is_good
    assert tree(root, *QUEUES) == {path: held for path, held in before.items() if path.startswith(QUEUES)}


class _Job(PeerProcess):
    """The command, running."""

    def __init__(self, home: Path, root: str) -> None:
        command = [sys.executable, "-m", "orbitmq", "pipeline", "rebuild", root, "--master", "local[2]"]
        environment = {**WIDTH, **spark_environment(home)}
        super().__init__("orbitmq pipeline rebuild", command, home=home, environment=environment)

    def interrupt(self) -> int:
        """Ctrl-C: its exit code. What it started has to end by itself."""
        os.killpg(self.pid, signal.SIGINT)
        code = self._process.wait(PATIENCE)
        RUNNING.discard(self)
        return code


def _of(home: Path) -> set[int]:
    """The processes that were started for a job, by the home that they were given."""
    mark = f"HOME={home}\0".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found
