"""Pipelines on a Spark cluster of several processes: migrations, and users' own definitions."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from orbitmq import Message, Producer
from orbitmq.spark.pipelines.declarative.job import init_project
from orbitmq.spark.schema.row_schema import RowSchema
from orbitmq.spark.topic_source.batch_reader import TopicBatchReader
from orbitmq.spark.topic_source.options import SourceOptions
from support.spark.spark_harness import run_program, server, standalone_cluster
from support.spark.topics import close_clusters, rows, schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.cli.command import Ran

pytestmark = pytest.mark.skipif(
    not os.environ.get("ORBITMQ_LONG"), reason="long tests, with twelve JVMs: make spark-soak runs them"
)

MESSAGES = 2000
CUSTOMERS = 300
SMALL = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.sql.shuffle.partitions": "2"}
SINK = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from orbitmq.spark.declarative import topic, topic_sink

topic_sink("{sink}")


@dp.append_flow(target="{sink}")
def moves() -> DataFrame:
    changes = topic("{topic}", schema="op string, id bigint, city string").where("op = 'update'")
    body = f.to_json(f.struct("id", "city")).cast("binary").alias("body")
    return changes.select(body, f.lit("move").alias("tags"))
"""


class SparkCluster:
    """A master and two workers, for commands one after the other."""

    def __init__(self, home: Path, master: str) -> None:
        self._home = home
        self._master = master

    def pipeline(self, home: Path, *arguments: object) -> Ran:
        """Run ``orbitmq pipeline`` here, with executors there."""
        home.mkdir(exist_ok=True)
        before = self._executors()
        settings = [part for name, value in SMALL.items() for part in ("--conf", f"{name}={value}")]
        ran = run_program(
            Path("-m"),
            home,
            *("orbitmq", "pipeline", *arguments, "--master", self._master, *settings, "--json"),
            PYSPARK_PYTHON=sys.executable,
        )
        assert ran.code == 0, ran.err
        # Both workers have had one more.
        assert [after - count for after, count in zip(self._executors(), before, strict=True)] == [1, 1]
        return ran

    def _executors(self) -> list[int]:
        return [len(list(self._home.glob(f"worker-{number}/work/app-*/*"))) for number in (1, 2)]


@pytest.fixture(scope="module")
def cluster(java_and_pyspark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    home = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(home) as master:
        yield SparkCluster(home, master)


def read(nameserver: str, topic: str, *columns: str) -> list[tuple[Any, ...]]:
    """The messages of a topic, by queue and offset."""
    given = SourceOptions.of({"nameserver": nameserver, "subscribe": topic, "retrySeconds": "2"}).for_batch()
    found = rows(TopicBatchReader(given, RowSchema.of(given, schema("queue_id", "queue_offset", *columns))))
    return sorted(found, key=lambda row: row[:2])


@pytest.mark.timeout(400)
def test_a_standalone_cluster_migrates_and_verifies(
    cluster: SparkCluster, nameserver: str, topic: str, tmp_path: Path
) -> None:
    with Producer(nameserver, group="orders") as producer:
        for number in range(MESSAGES):
            producer.send(Message(topic, f"order {number}", tags=f"t{number % 3}", keys=str(number)))
    target = tmp_path / "target"
    target.mkdir()
    with server(target) as there:
        command = ["migrate", "--from", f"rocketmq://{nameserver}", "--to", f"rocketmq://{there}"]
        command += ["--topics", f"{topic}:copy", "--state", str(tmp_path / "state"), "--max-messages", "1500"]
        reported = cluster.pipeline(tmp_path / "driver", *command).json
        assert (reported["good"], reported["rounds"], reported["offsets"]) == (True, 2, MESSAGES)
        assert reported["verified"] == {topic: MESSAGES}
        assert [reported[name] for name in ("missing", "extra", "different", "out_of_order")] == [0, 0, 0, 0]
        columns = ("body", "tags", "unique_id")
        before, after = read(nameserver, topic, *columns), read(there, "copy", *columns)
        close_clusters()
    assert len(after) == MESSAGES
    # Queue by queue, at the same places.
    assert after == before


@pytest.mark.timeout(600)
def test_a_standalone_cluster_runs_definitions_and_goes_on(
    cluster: SparkCluster, nameserver: str, topic: str, tmp_path: Path
) -> None:
    project, sink = tmp_path / "shop", f"{topic}_moves"
    init_project(project, ["cdc"])
    for definition in (project / "transformations").iterdir():
        definition.write_text(definition.read_text().replace("customers-changes", topic))
    (project / "transformations" / "moves.py").write_text(SINK.format(topic=topic, sink=sink))

    def send(*changes: dict[str, Any]) -> None:
        with Producer(nameserver, group="changes") as producer:
            for change in changes:
                producer.send(Message(topic, json.dumps(change)))

    def customers() -> list[dict[str, Any]]:
        found = pq.read_table(project / "warehouse" / "customers").to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def moved() -> list[int]:
        found = read(nameserver, sink, "body", "tags")
        return sorted(json.loads(body)["id"] for _, _, body, tags in found if tags == "move")

    made = [{"id": number, "name": f"n{number}", "city": "Oslo"} for number in range(CUSTOMERS)]
    move = [{**row, "city": "Bonn"} for row in made[::3]]
    send(*({"op": "insert", "version": 1, **row} for row in made))
    send(*({"op": "update", "version": 2, **row} for row in move))
    reported = cluster.pipeline(tmp_path / "driver", "run", project, "-n", nameserver).json
    assert (reported["good"], reported["completed"]) == (True, ["customer_changes", "customers", "moves"])
    expected = made.copy()
    expected[::3] = move
    assert customers() == expected
    assert moved() == list(range(0, CUSTOMERS, 3))
    # What is new, and nothing twice.
    send({"op": "delete", "version": 3, "id": 0}, {"op": "update", "version": 3, **made[1], "city": "Rome"})
    assert cluster.pipeline(tmp_path / "driver", "run", project, "-n", nameserver).json["good"]
    assert customers() == [{**made[1], "city": "Rome"}, *expected[2:]]
    assert moved() == sorted([*range(0, CUSTOMERS, 3), 1])
