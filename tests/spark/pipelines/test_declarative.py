"""The example pipelines run for real, twice: the second run takes what is new, and writes nothing twice."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import Consumer, Message, Producer
from orbitmq.client.errors import NoRouteError
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.pipelines.declarative.job import EXAMPLES, failure_of, init_project
from support.cli.command import run_apart
from support.spark.archive_harness import PipelineProcess, wait_for
from support.spark.spark_harness import server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

IS_LONG = bool(os.environ.get("ORBITMQ_LONG"))
PATIENCE = 240
"""For one run: it starts Spark, and a Spark Connect server in it."""


@pytest.fixture(scope="module")
def own_nameserver(java_and_pyspark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The topics of the examples have fixed names, so they get a broker of their own."""
    with server(tmp_path_factory.mktemp("server")) as address:
        yield address


def send(nameserver: str, topic: str, *bodies: dict[str, Any]) -> None:
    with Producer(nameserver, group="examples") as producer:
        for body in bodies:
            producer.send(Message(topic, json.dumps(body).encode()))


def first_messages(nameserver: str) -> None:
    send(
        nameserver,
        "clicks",
        {"user": "ann", "page": "/", "at": "2026-11-16T08:00:00Z"},
        {"user": "ann", "page": "/shoes", "at": "2026-11-16T08:10:00Z"},
        {"user": "bob", "page": "/hats", "at": "2026-11-16T08:05:00Z"},
        {"user": "eve", "page": "/", "at": "2026-11-16T10:00:00Z"},
    )
    send(
        nameserver,
        "orders",
        {"order_id": "1", "amount": 10.5, "ordered_at": "2026-11-16T08:00:00Z"},
        {"order_id": "2", "amount": 20, "ordered_at": "2026-11-16T08:00:00Z"},
    )
    send(nameserver, "payments", {"paid_id": "1", "method": "card", "paid_at": "2026-11-16T08:30:00Z"})
    send(
        nameserver,
        "customers-changes",
        {"op": "insert", "id": 1, "version": 1, "name": "Ann", "city": "Oslo"},
        {"op": "insert", "id": 2, "version": 2, "name": "Bob", "city": "Rome"},
        {"op": "update", "id": 1, "version": 3, "name": "Ann", "city": "Bonn"},
    )
    send(nameserver, "bills", {"bill": 1})
    a_dead_letter(nameserver)


def a_dead_letter(nameserver: str) -> None:
    consumer = Consumer(nameserver, group="billing", max_reconsume_times=0)

    @consumer.on("bills")
    def fail(message: object) -> None:
        raise ValueError("no")

    cluster = Cluster.of(nameserver)
    with consumer:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(NoRouteError):
                if any(ends.max for ends in cluster.bounds(["%DLQ%billing"])["%DLQ%billing"].values()):
                    return
            time.sleep(0.2)
    pytest.fail("there is no dead letter")


def second_messages(nameserver: str) -> None:
    send(nameserver, "clicks", {"user": "eve", "page": "/late", "at": "2026-11-16T12:00:00Z"})
    send(nameserver, "payments", {"paid_id": "2", "method": "cash", "paid_at": "2026-11-16T08:50:00Z"})
    send(nameserver, "customers-changes", {"op": "delete", "id": 2, "version": 4})


def rows(spark: SparkSession, project: Path, table: str) -> list[tuple[Any, ...]]:
    found = spark.read.parquet(str(project / "warehouse" / table)).collect()
    return sorted(tuple(str(value) for value in row) for row in found)


def alerts(spark: SparkSession, nameserver: str) -> list[dict[str, Any]]:
    found = spark.read.format("orbitmq").options(nameserver=nameserver, subscribe="alerts").load()
    return [json.loads(bytes(row.body)) for row in found.where("tags = 'dead-letter'").collect()]


def interrupted(project: Path, nameserver: str, home: Path) -> None:
    """A run that is ended by Ctrl-C, when it has begun to write."""
    job = PipelineProcess(home, "run", project, "-n", nameserver, "--master", "local[2]")
    wait_for(lambda: list(project.glob("warehouse/*/*.parquet")), "begun to write")
    code = job.interrupt()
    console = (home / "console.log").read_text()
    assert code == 130, console
    assert console.splitlines()[-1] == "orbitmq: interrupted: run the same command again to go on"
    assert not re.search("Traceback|Exception|ERROR", console), console


def ran(project: Path, nameserver: str, *more: str) -> dict[str, Any]:
    run = run_apart(
        "pipeline", "run", project, "-n", nameserver, "--json", "--master", "local[2]", *more, timeout=PATIENCE
    )
    assert run.code == 0, run.err
    summary: dict[str, Any] = run.json
    return summary


@pytest.mark.timeout(3 * PATIENCE)
def test_every_example_is_interrupted_and_goes_on(own_nameserver: str, spark: SparkSession, tmp_path: Path) -> None:
    project = tmp_path / "shop"
    init_project(project, EXAMPLES)
    first_messages(own_nameserver)
    interrupted(project, own_nameserver, tmp_path / "job")

    sessions = [("ann", "2026-11-16 08:00:00", "2026-11-16 08:40:00", "2", "/")]
    sessions += [("bob", "2026-11-16 08:05:00", "2026-11-16 08:35:00", "1", "/hats")]
    letter = {"group": "billing", "topic": "bills", "reconsume_times": 1}
    if IS_LONG:
        ran(project, own_nameserver)
        # Eve's session may still go on.
        assert rows(spark, project, "sessions") == sessions
        assert rows(spark, project, "revenue") == [("card", "1", "10.50")]
        assert rows(spark, project, "customers") == [("1", "Ann", "Bonn"), ("2", "Bob", "Rome")]
        assert len(alerts(spark, own_nameserver)) == 1

    second_messages(own_nameserver)
    summary = ran(project, own_nameserver)
    assert summary["completed"] == [
        "customer_changes", "customers", "dead_letters", "paid_orders", "revenue", "sessions",
    ]  # fmt: skip
    sessions += [("eve", "2026-11-16 10:00:00", "2026-11-16 10:30:00", "1", "/")]
    assert rows(spark, project, "sessions") == sessions
    assert rows(spark, project, "revenue") == [("card", "1", "10.50"), ("cash", "1", "20.00")]
    assert rows(spark, project, "customers") == [("1", "Ann", "Bonn")]
    assert [{name: one[name] for name in letter} for one in alerts(spark, own_nameserver)] == [letter]


@pytest.mark.timeout(2 * PATIENCE)
def test_what_spark_finds_wrong_is_a_sentence(own_nameserver: str, tmp_path: Path) -> None:
    init_project(tmp_path / "shop", ["cdc"])
    definition = tmp_path / "shop" / "transformations" / "customers.sql"
    definition.write_text(definition.read_text().replace("last.city", "last.country"))
    run = run_apart("pipeline", "run", tmp_path / "shop", "-n", own_nameserver, "--dry-run", timeout=PATIENCE)
    assert run.code == 1
    assert "Traceback" not in run.err
    assert "'customers'" in run.err.splitlines()[-1]
    assert "country" in run.err.splitlines()[-1]


def test_the_flow_that_failed_first_is_named_with_its_reason() -> None:
    after = "Failed to resolve flow due to upstream failure: 'spark_catalog.default.cities'.\nError: Failed to read"
    first = (
        "Failed to resolve flow: 'spark_catalog.default.customers'.\n"
        "Error: [FIELD_NOT_FOUND] No such struct field `country` in `city`. SQLSTATE: 42704; line 2 pos 1;\n'P"
    )
    failure = "the flow 'customers' failed: No such struct field `country` in `city`"
    assert failure_of([after, first]) == failure
    assert failure_of(["Flow 'spark_catalog.default.customers' has FAILED."]).endswith("customers' has FAILED.")
