"""What tasks of Spark write to Apache's broker: batches are taken, found again by their ids, and written once."""

from __future__ import annotations

import collections
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.sdk.sdk_harness import APACHE, OURS, create_topic, own_name, read_all, servers_of
from orbitmq.client.producer.queue_selector import index_by_hash
from orbitmq.spark.sink.connection import close_connections
from orbitmq.spark.sink.message_ids import Origin
from peers.apache import mqadmin
from support.spark.sink_harness import batch_of, bodies, writer_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from conformance.servers.processes import Serving
    from orbitmq.spark.sink.writer import Written

ORIGIN, RETRIED = Origin("write"), Origin("write", attempt=1)


@pytest.fixture(scope="module", params=[OURS, APACHE])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with servers_of(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def topic(server: Serving, request: pytest.FixtureRequest) -> Iterator[str]:
    yield create_topic(server, own_name(request))
    close_connections()


def write(
    server: Serving, topic: str, *batches: pa.RecordBatch, origin: Origin = ORIGIN, **options: object
) -> Written:
    return writer_for(server.nameserver, batches[0], topic=topic, **options).write_as(origin, batches)


def counted(server: Serving, topic: str, count: int) -> dict[bytes, int]:
    return collections.Counter(message.body for message in read_all(server, topic, count))


def test_a_long_batch_is_taken_and_each_row_is_a_message(server: Serving, topic: str) -> None:
    batch = batch_of(
        body=bodies(4000),
        tags=[f"t{number % 3}" for number in range(4000)],
        keys=[[str(number), "k"] for number in range(4000)],
        properties=[{"ключ": "✓"}] * 4000,
    )
    written = write(server, topic, batch, batchRows=4000, batchBytes="4m")
    assert (written.rows, written.chunks) == (4000, 1)
    found = {message.body: message for message in read_all(server, topic, 4000)}
    eleventh = found[b"row 11"]
    assert (eleventh.tags, eleventh.keys, eleventh.properties["ключ"]) == ("t2", ["11", "k"], "✓")
    assert len({message.message_id for message in found.values()}) == 4000


def test_a_task_that_runs_again_writes_nothing_twice(server: Serving, topic: str) -> None:
    rows = [batch_of(body=bodies(100, start)) for start in range(0, 2000, 100)]
    write(server, topic, *rows[:12])
    again = write(server, topic, *rows, origin=RETRIED)
    assert (again.rows, again.skipped) == (2000, 12)
    assert counted(server, topic, 2000) == dict.fromkeys(bodies(2000), 1)


def test_rows_with_ids_of_their_own_are_known_again(server: Serving, topic: str) -> None:
    batch = batch_of(body=bodies(100), unique_id=[f"{topic}-{number}" for number in range(100)])
    write(server, topic, batch, batchRows=30)
    assert write(server, topic, batch, batchRows=30, origin=RETRIED).skipped == 4
    assert write(server, topic, batch, batchRows=30, origin=Origin("other")).skipped == 0
    ids = collections.Counter(message.message_id for message in read_all(server, topic, 200))
    assert ids == {f"{topic}-{number}": 2 for number in range(100)}


def test_rows_with_one_sharding_key_stay_in_order(server: Serving, topic: str) -> None:
    keys = [f"order-{number % 5}" for number in range(500)]
    write(server, topic, batch_of(body=bodies(500), sharding_key=keys), batchRows=20)
    found = read_all(server, topic, 500)
    for number in range(5):
        mine = [message for message in found if message.properties["__SHARDINGKEY"] == f"order-{number}"]
        assert [message.body for message in mine] == bodies(500)[number::5]
        assert {message.queue_id for message in mine} == {index_by_hash(f"order-{number}", 4)}


def test_compressed_rows_are_read_as_they_were(server: Serving, topic: str) -> None:
    rows = [b"%d " % number * 500 for number in range(50)]
    write(server, topic, batch_of(body=rows), compress="zlib")
    assert counted(server, topic, 50) == dict.fromkeys(rows, 1)


def test_delayed_rows_are_known_again_while_they_wait_and_later(server: Serving, topic: str) -> None:
    batch = batch_of(body=bodies(20), delay_level=[1] * 20)
    write(server, topic, batch)
    assert write(server, topic, batch, origin=RETRIED).skipped == 1
    assert counted(server, topic, 20) == dict.fromkeys(bodies(20), 1)
    assert write(server, topic, batch, origin=RETRIED).skipped == 1
    assert counted(server, topic, 20) == dict.fromkeys(bodies(20), 1)


def test_a_broker_that_restarts_meanwhile_costs_nothing(server: Serving, topic: str) -> None:
    rows = [batch_of(body=bodies(100, start)) for start in range(0, 1000, 100)]

    def while_it_restarts() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows):
            if number == 5:
                server.kill()
                server.start()
            yield batch

    writer = writer_for(server.nameserver, rows[0], topic=topic)
    assert writer.write_as(ORIGIN, while_it_restarts()).rows == 1000
    assert counted(server, topic, 1000) == dict.fromkeys(bodies(1000), 1)


def test_javas_tools_find_a_row_by_its_id(server: Serving, topic: str) -> None:
    write(server, topic, batch_of(body=bodies(3), keys=[["first"], ["second"], ["third"]]))
    second = next(message for message in read_all(server, topic, 3) if message.keys == ["second"])
    told = mqadmin("queryMsgByUniqueKey", "-n", server.nameserver, "-t", topic, "-i", second.message_id)
    # It puts the body of what it finds into a file, at a place of its own choice.
    said = re.search(r"Message Body Path: +(\S+)", told)
    assert said is not None, told
    found = Path(said[1])
    assert found.read_bytes() == b"row 1"
    found.unlink()
    assert re.search(r"Keys: +\[second\]", told)
