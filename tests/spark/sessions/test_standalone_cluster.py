"""A Spark cluster of several processes reads and writes topics as a session on one machine does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from orbitmq import Message
from support.spark.spark_harness import run_program, standalone_cluster

if TYPE_CHECKING:
    from orbitmq.testing import ThreadCluster

PROGRAM = Path(__file__).with_name("standalone_program.py")
ORDERS = 1000


@pytest.mark.usefixtures("java_and_pyspark")
@pytest.mark.timeout(400)  # six JVMs start
@pytest.mark.orbitmq(brokers=2)
def test_a_standalone_cluster_reads_writes_streams_and_archives(orbitmq: ThreadCluster, tmp_path: Path) -> None:
    producer = orbitmq.producer(group="orders")
    for number in range(ORDERS):
        producer.send(
            Message("orders", str(number), tags="even" if number % 2 == 0 else "odd", keys=f"order-{number}")
        )
    home = tmp_path / "driver"
    home.mkdir()
    with standalone_cluster(tmp_path) as master:
        ran = run_program(
            *(PROGRAM, home, master, orbitmq.name_server, "orders", "dear", "doubled", tmp_path / "checkpoint"),
            tmp_path / "archive",
            PYSPARK_PYTHON=sys.executable,
        )
        assert ran.code == 0, ran.err
    assert ran.json["read"] == [ORDERS, sum(range(ORDERS))]
    assert ran.json["batches"] >= 2
    # Both workers have had an executor.
    assert [len(list(folder.glob("work/app-*/*"))) for folder in sorted(tmp_path.glob("worker-*"))] == [1, 1]
    copied = orbitmq.messages("dear")
    assert sorted(int(message.body) for message in copied) == list(range(500, ORDERS))
    assert {(message.tags, int(message.body) % 2) for message in copied} == {("even", 0), ("odd", 1)}
    assert all(message.keys == [f"order-{message.body.decode()}"] for message in copied)
    assert (ran.json["archived"]["messages"], ran.json["archived"]["segments"]) == (ORDERS, 2)
    archived = [row["body"] for file in (tmp_path / "archive").rglob("*.parquet") for row in _rows(file)]
    assert sorted(map(int, archived)) == list(range(ORDERS))
    doubled = sorted(int(message.body) for message in orbitmq.messages("doubled"))
    assert doubled == [2 * number for number in range(500, ORDERS)]


def _rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path, columns=["body"], partitioning=None).to_pylist()
    return found
