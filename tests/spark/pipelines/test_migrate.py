"""The migrate pipeline: Kafka to here and back, each message once, equal and in order, and what is not is found."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import Message, Producer
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.pipelines.migrate.job import migrate, planned
from orbitmq.spark.pipelines.migrate.mapping import Record, origin_of
from orbitmq.spark.pipelines.migrate.request import MigrateRequest
from orbitmq.spark.pipelines.migrate.state import Migration
from orbitmq.spark.pipelines.progress import silent
from peers.kafka import Kafka, unavailable
from support.spark.archive_harness import PipelineProcess, wait_for
from support.spark.migrate_harness import KafkaTopics
from support.spark.spark_harness import SHORT_LIFE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytest.importorskip("confluent_kafka", reason="Kafka's client is not installed")

MARKS = 4
"""Headers that a migration adds."""
PARTITIONS = 3
MANY = 60_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTopics]:
    if reason := unavailable():
        pytest.skip(reason)
    small = ("-Xmx384m", *SHORT_LIFE.split())
    with Kafka(tmp_path_factory.mktemp("kafka") / "node", PARTITIONS, *small) as node:
        yield KafkaTopics(node.address)


def of_all_kinds(count: int) -> list[Record]:
    """Records with every kind of key, value and headers."""
    keys = [None, b"", b"order-7", "schlüssel".encode(), b"two words", b"\x00\xff\x10", b"base64:no"]
    values = [b"plain", None, b"", b"\x00", bytes(range(256)), b"wert"]
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("trace", b"abc"), ("kind", b"order")),
        (("twice", b"1"), ("other", b"\xff\xfe"), ("twice", b"2")),
        (("nothing", None), ("empty", b""), ("TAGS", b"t"), ("KEYS", b"k"), ("__SHARDINGKEY", b"s"), ("ü x", b"y")),
        (("KAFKA_KEY", b"mine"), ("ROCKETMQ_BORN", b"1"), ("DELAY", b"3")),
    ]
    now = round(time.time() * 1000)
    return [Record(keys[at % 7], values[at % 6], headers[at % 5], now - 1000 * (count - at)) for at in range(count)]


def stripped(records: list[Record]) -> list[Record]:
    """Without what the migration has added, which comes last."""
    return [dataclasses.replace(record, headers=record.headers[:-MARKS]) for record in records]


def count_of(nameserver: str, topic: str) -> int:
    found = Cluster.of(nameserver).bounds([topic])[topic]
    return sum(bounds.max - bounds.min for bounds in found.values())


def test_kafka_to_here_and_back_is_equal_to_the_byte(
    spark: SparkSession, nameserver: str, kafka: KafkaTopics, tmp_path: Path
) -> None:
    here, state = f"rocketmq://{nameserver}", str(tmp_path)
    kafka.make("orders", PARTITIONS)
    kafka.send("orders", [(at % PARTITIONS, record) for at, record in enumerate(of_all_kinds(500))])
    # What would be done.
    request = MigrateRequest(source=kafka.url, target=here, topics=("orders:orders-here",), state=state)
    facts = planned(request, silent()).facts
    assert (facts["messages"], facts["topics_to_make"]) == ({"orders": 500}, {"orders-here": "3 queues"})
    assert not list(tmp_path.iterdir())
    # It is done, in several rounds.
    summary = migrate(
        spark, source=kafka.url, target=here, topics="orders:orders-here", state=state, max_messages=200
    )
    assert summary.is_good, summary.facts
    facts = summary.facts
    assert (facts["rounds"], facts["offsets"], facts["verified"]) == (3, 500, {"orders": 500})
    assert [facts[name] for name in ("missing", "extra", "different", "out_of_order")] == [0, 0, 0, 0]
    # People find what they look for by: keys, properties, bodies.
    read = spark.read.format("orbitmq").options(nameserver=nameserver, subscribe="orders-here").load()
    assert read.where("array_contains(keys, 'order-7') AND properties['trace'] = 'abc'").count() > 0
    assert read.where("queue_id >= 3").count() == 0
    # There and back, and more of it that came later.
    back: dict[str, Any] = {
        "source": here,
        "target": kafka.url,
        "topics": ["orders-here:orders-back"],
        "state": state,
    }
    assert migrate(spark, **back).is_good
    kafka.send("orders", [(0, record) for record in of_all_kinds(20)])
    again: dict[str, Any] = {"source": kafka.url, "target": here, "topics": "orders:orders-here", "state": state}
    for given in (again, back):
        facts = migrate(spark, **given).facts
        assert (facts["rounds"], facts["offsets"]) == (1, 20)
    for partition in range(PARTITIONS):
        assert stripped(kafka.read("orders-back", partition)) == kafka.read("orders", partition)
    assert migrate(spark, **back).facts["messages"] == 0


@pytest.mark.skipif(not os.environ.get("ORBITMQ_LONG"), reason="a long test: make spark-soak runs it")
@pytest.mark.timeout(400)
def test_a_migration_that_was_killed_goes_on_and_writes_each_message_once(
    spark: SparkSession, nameserver: str, kafka: KafkaTopics, topic: str, tmp_path: Path
) -> None:
    kafka.make(topic, 2)
    now = round(time.time() * 1000)
    records = [(at % 2, Record(b"key-%d" % at, b"value %d" % at, (), now)) for at in range(MANY)]
    kafka.send(topic, records)
    given: dict[str, Any] = {
        "source": kafka.url,
        "target": f"rocketmq://{nameserver}",
        "topics": topic,
        "state": str(tmp_path),
    }
    command = ["--from", given["source"], "--to", given["target"], "--topics", topic, "--state", given["state"]]
    process = PipelineProcess(tmp_path / "home", "migrate", *command, "--name", "it", "--master", "local[2]")

    def is_under_way() -> bool:
        assert process.running, process.quote()
        return bool(Migration(str(tmp_path), "it").rounds()) and count_of(nameserver, topic) > 0

    wait_for(is_under_way, "copying")
    process.kill_driver()
    process.kill()
    assert not Migration(str(tmp_path), "it").rounds()[0].is_done
    summary = migrate(spark, **given, name="it")
    assert summary.is_good, summary.facts
    assert 0 < summary.facts["offsets"] < MANY
    assert count_of(nameserver, topic) == MANY
    # Back, where a round was interrupted that had written a part: the rest is written.
    back: dict[str, Any] = {
        "source": given["target"],
        "target": kafka.url,
        "topics": [f"{topic}:back"],
        "state": str(tmp_path),
    }
    assert migrate(spark, **back, name="back", verify=False).is_good
    state = Migration(str(tmp_path), "back")
    (one,) = state.rounds()
    kafka.send(topic, records[:10])
    assert migrate(spark, **given, name="it").is_good
    longer = tuple(dataclasses.replace(span, end=span.end + 5) for span in one.spans)
    state.write(dataclasses.replace(one, spans=longer, is_done=False))
    summary = migrate(spark, **back, name="back")
    assert summary.is_good, summary.facts
    assert (summary.facts["offsets"], summary.facts["in_target"]) == (10, {topic: MANY + 10})
    assert stripped(kafka.read("back", 1)) == kafka.read(topic, 1)


def test_what_is_not_as_it_should_be_is_found_and_named(
    spark: SparkSession, nameserver: str, kafka: KafkaTopics, topic: str, tmp_path: Path
) -> None:
    kafka.make(topic, 1)
    now = round(time.time() * 1000)
    kafka.send(topic, [(0, Record(None, b"value %d" % at, (), now)) for at in range(20)])
    given: dict[str, Any] = {
        "source": kafka.url,
        "target": f"rocketmq://{nameserver}",
        "topics": topic,
        "state": str(tmp_path),
    }
    facts = migrate(spark, **given, name="it", verify=False).facts
    assert facts["verified"] == "no"
    # Two more that were not copied, although the state file lists them.
    kafka.send(topic, [(0, Record(None, b"more", (), now)) for _ in range(2)])
    state = Migration(str(tmp_path), "it")
    (one,) = state.rounds()
    (span,) = one.spans
    state.write(dataclasses.replace(one, spans=(dataclasses.replace(span, end=22),)))
    # One that is there a second time and differs, and one that is not from the source.
    (queue,) = one.routes.values()
    with Producer(nameserver, group="planting") as producer:
        to = MessageQueue(topic, queue.name.rpartition(":")[0], 0)
        for offset in (7, 99):
            marks = dict(origin_of("it", topic, "0", offset))
            producer.send(Message(topic, "planted", properties=marks), queue=to)
    summary = migrate(spark, **given, name="it")
    assert not summary.is_good
    assert [summary.facts[name] for name in ("missing", "extra", "different", "out_of_order")] == [2, 2, 1, 1]
    assert summary.facts["first"] == [
        f"{topic} 0 offset 20: missing (2 in all)",
        f"{topic} 0 offset 7: extra (2 in all)",
        f"{topic} 0 offset 7: different (1 in all)",
        f"{topic} 0 offset 7: out of order (1 in all)",
    ]
    # It stays so until it is repaired: the next run checks again.
    assert not migrate(spark, **given, name="it").is_good
