"""Tasks that write rows to a cluster: once, however often they run, and whatever happens to brokers meanwhile."""

from __future__ import annotations

import collections
import dataclasses
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.client.errors import BrokerError, InvalidMessageError, NoNameServerError, NoRouteError, SendError
from orbitmq.client.producer.queue_selector import index_by_hash
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.message.batch import item_bounds
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.sink import sender as sink_sending
from orbitmq.spark.sink.chunker import Chunker
from orbitmq.spark.sink.connection import MAX_CONNECTIONS, close_connections, connected
from orbitmq.spark.sink.message_ids import Origin
from orbitmq.spark.sink.row_encoder import RowEncoder
from orbitmq.spark.sink.sender import Delivery
from orbitmq.testing import LocalCluster
from peers.frames import ask
from support.spark.sink_harness import TOPIC, batch_of, bodies, columns_of, sink_options, writer_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from orbitmq.client.message import ReceivedMessage
    from orbitmq.spark.sink.writer import Written
    from orbitmq.testing.cluster_thread import ThreadCluster

SYNC = {"flushDiskType": "SYNC_FLUSH"}
"""So that a power cut takes nothing that was answered."""

ORIGIN = Origin("write", None, 5)
RETRIED = Origin("write", None, 5, attempt=1)


class UpstreamError(Exception):
    """The error at the end of a task's rows when a stage before the writer fails."""


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Brokers in this process have nothing to settle; and connections end with their test."""
    monkeypatch.setattr(sink_sending, "SETTLING_SECONDS", 0.0)
    yield
    close_connections()


@pytest.fixture
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster() as running:
        yield running


@pytest.fixture
def pair() -> Iterator[ThreadCluster]:
    with LocalCluster(brokers=2, settings=SYNC) as running:
        yield running


def write(cluster: ThreadCluster, *batches: pa.RecordBatch, origin: Origin = ORIGIN, **options: object) -> Written:
    return writer_for(cluster.name_server, batches[0], **options).write_as(origin, batches)


def stored(cluster: ThreadCluster, topic: str = TOPIC) -> list[bytes]:
    return [message.body for message in cluster.messages(topic)]


def counted(cluster: ThreadCluster, topic: str = TOPIC) -> dict[bytes, int]:
    return collections.Counter(stored(cluster, topic))


def once(rows: list[bytes]) -> dict[bytes, int]:
    return dict.fromkeys(rows, 1)


def batches(count: int, rows: int = 10) -> list[pa.RecordBatch]:
    return [batch_of(body=bodies(rows, number * rows)) for number in range(count)]


def then(rows: list[pa.RecordBatch], at: int, happening: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    """Rows between two of which something happens."""
    for number, batch in enumerate(rows):
        if number == at:
            happening()
        yield batch


def fail() -> None:
    raise UpstreamError


# Rows and messages


def test_rows_arrive_as_messages(cluster: ThreadCluster) -> None:
    batch = batch_of(
        body=bodies(2), tags=["paid", None], keys=[["a", "b"], None], properties=[{"amount": "9"}, None]
    )
    written = write(cluster, batch)
    first, second = sorted(cluster.messages(TOPIC), key=lambda message: message.body)
    assert (written.rows, written.chunks, written.skipped) == (2, 1, 0)
    assert (first.body, first.tags, first.keys, first.properties["amount"]) == (b"row 0", "paid", ["a", "b"], "9")
    assert (second.body, second.tags, second.keys) == (b"row 1", None, [])
    assert first.message_id[:-1] == second.message_id[:-1]


def test_chunks_take_turns_over_all_queues_of_all_brokers(pair: ThreadCluster) -> None:
    write(pair, *batches(16))
    places = collections.Counter((message.broker_name, message.queue_id) for message in pair.messages(TOPIC))
    assert places == {(broker, queue): 20 for broker in ("broker-a", "broker-b") for queue in range(4)}


def test_rows_go_to_the_topic_that_they_name(cluster: ThreadCluster) -> None:
    batch = batch_of(body=bodies(100), topic=[f"T{number % 3}" for number in range(100)])
    assert write(cluster, batch, topic=None).chunks == 3
    for number in range(3):
        assert stored(cluster, f"T{number}") == bodies(100)[number::3]


def test_rows_with_one_sharding_key_stay_in_order_in_one_queue(cluster: ThreadCluster) -> None:
    keys = [f"order-{number % 5}" for number in range(200)]
    parts = [batch_of(body=bodies(40, start), sharding_key=keys[start : start + 40]) for start in range(0, 200, 40)]
    write(cluster, *parts, batchRows=7)
    by_key: dict[str, list[ReceivedMessage]] = collections.defaultdict(list)
    for message in sorted(cluster.messages(TOPIC), key=lambda message: (message.queue_id, message.queue_offset)):
        by_key[message.properties["__SHARDINGKEY"]].append(message)
    for number in range(5):
        found = by_key[f"order-{number}"]
        assert [message.body for message in found] == bodies(200)[number::5]
        assert {message.queue_id for message in found} == {index_by_hash(f"order-{number}", 4)}


def test_rows_may_name_queue_and_broker(pair: ThreadCluster) -> None:
    batch = batch_of(body=bodies(3), queue_id=[2, 3, 2], broker=["broker-b", "broker-a", None])
    write(pair, batch)
    places = {message.body: (message.broker_name, message.queue_id) for message in pair.messages(TOPIC)}
    assert places == {b"row 0": ("broker-b", 2), b"row 1": ("broker-a", 3), b"row 2": ("broker-a", 2)}


def test_compressed_rows_are_read_as_they_were(cluster: ThreadCluster) -> None:
    rows = [b"x" * 5000, b"y"]
    write(cluster, batch_of(body=rows), compress="lz4")
    assert stored(cluster) == rows


def test_a_row_of_the_largest_size_is_written(cluster: ThreadCluster) -> None:
    rows = [b"x" * (4 << 20), b"y"]
    write(cluster, batch_of(body=rows))
    assert sorted(map(len, stored(cluster))) == [1, 4 << 20]


# A task that runs again


def test_a_task_that_runs_again_writes_nothing_twice(cluster: ThreadCluster) -> None:
    rows = batches(30)
    first = write(cluster, *rows)
    again = write(cluster, *rows, origin=RETRIED)
    assert (first.rows, first.skipped) == (300, 0)
    assert (again.rows, again.chunks, again.skipped, again.bytes) == (300, 30, 30, 0)
    assert counted(cluster) == once(bodies(300))


def test_a_task_that_failed_is_completed(cluster: ThreadCluster) -> None:
    rows = batches(30)
    writer = writer_for(cluster.name_server, rows[0])
    with pytest.raises(UpstreamError):
        writer.write_as(ORIGIN, then(rows, 20, fail))
    # After a failure, nothing of it is in flight any more.
    there = len(stored(cluster)) // 10
    again = writer.write_as(RETRIED, iter(rows))
    assert (again.rows, again.skipped) == (300, there)
    assert 16 <= there <= 20
    assert counted(cluster) == once(bodies(300))


@pytest.mark.parametrize("were_written", [{0}, {2}, {0, 1, 3}, {0, 1, 2, 3, 4, 6, 8}, set(range(20)) | {33}])
def test_chunks_that_overtook_others_are_found(cluster: ThreadCluster, were_written: set[int]) -> None:
    rows = batches(40)
    options = sink_options(nameserver=cluster.name_server)
    encoder = RowEncoder(columns_of(rows[0], options), options)
    with connected(options) as connection:
        chunker = Chunker(ORIGIN, options, connection.queues)
        delivery = Delivery(connection, options, ORIGIN.start)
        for batch in rows:
            for chunk in chunker.chunks(encoder.rows(batch, 0)):
                if chunk.number in were_written:
                    connection.submit(delivery.deliver(chunk, look=False)).result()
    again = write(cluster, *rows, origin=RETRIED)
    assert again.skipped == len(were_written)
    assert counted(cluster) == once(bodies(400))


def test_a_chunk_of_which_a_part_is_gone_is_written_again(cluster: ThreadCluster) -> None:
    batch = batch_of(body=bodies(20), queue_id=[0] * 20)
    options = sink_options(nameserver=cluster.name_server, batchRows=10)
    encoder = RowEncoder(columns_of(batch, options), options)
    with connected(options) as connection:
        before, chunk = Chunker(ORIGIN, options, connection.queues).chunks(encoder.rows(batch, 0))
        # As after a loss of power: of the second chunk the last half is there, and before it lies something else.
        starts, _ = item_bounds(chunk.body)
        torn = dataclasses.replace(chunk, body=chunk.body[starts[5] :])
        delivery = Delivery(connection, options, 0)
        for each, look, was_there in (
            (before, False, False),
            (torn, False, False),
            (chunk, True, False),
            (chunk, True, True),
        ):
            assert connection.submit(delivery.deliver(each, look=look)).result() is was_there
    assert counted(cluster) == once(bodies(15)) | dict.fromkeys(bodies(5, 15), 2)


def test_rows_in_another_order_are_written_again_rather_than_lost(cluster: ThreadCluster) -> None:
    rows = bodies(300)
    writer = writer_for(cluster.name_server, batch_of(body=rows), batchRows=10)
    with pytest.raises(UpstreamError):
        writer.write_as(ORIGIN, then([batch_of(body=rows[:200]), batch_of(body=rows[200:])], 1, fail))
    random.Random(7).shuffle(rows)
    writer.write_as(RETRIED, [batch_of(body=rows)])
    found = counted(cluster)
    assert set(found) == set(rows)
    assert max(found.values()) == 2


def test_rows_that_are_otherwise_cut_are_not_lost(cluster: ThreadCluster) -> None:
    write(cluster, *batches(6))
    write(cluster, batch_of(body=bodies(60)), origin=RETRIED)
    assert set(counted(cluster)) == set(bodies(60))


def test_other_batches_and_partitions_with_equal_rows_are_written(cluster: ThreadCluster) -> None:
    origins = [Origin("query", "1", 0), Origin("query", "2", 0), Origin("query", "2", 1), Origin("other", "2", 1)]
    for origin in origins:
        assert write(cluster, *batches(2), origin=origin).skipped == 0
    assert counted(cluster) == dict.fromkeys(bodies(20), 4)


def test_a_whole_job_may_run_again_under_its_name(cluster: ThreadCluster) -> None:
    for _ in range(2):
        writer_for(cluster.name_server, batches(1)[0], writeId="nightly").write(iter(batches(3)))
    assert counted(cluster) == once(bodies(30))
    writer_for(cluster.name_server, batches(1)[0]).write(iter(batches(3)))
    assert counted(cluster) == dict.fromkeys(bodies(30), 2)


def test_without_idempotence_no_earlier_write_is_looked_up(cluster: ThreadCluster) -> None:
    for origin in (ORIGIN, RETRIED):
        assert write(cluster, *batches(3), origin=origin, idempotent="false").skipped == 0
    assert counted(cluster) == dict.fromkeys(bodies(30), 2)


def test_what_was_written_is_found_after_the_broker_came_back(cluster: ThreadCluster) -> None:
    write(cluster, *batches(5))
    cluster.restart("broker-a")
    assert write(cluster, *batches(5), origin=RETRIED).skipped == 5
    assert counted(cluster) == once(bodies(50))


def test_rows_with_ids_of_their_own_are_known_again(cluster: ThreadCluster) -> None:
    batch = batch_of(body=bodies(20), unique_id=[f"id-{number}" for number in range(20)])
    write(cluster, batch, batchRows=5)
    again = write(cluster, batch, batchRows=5, origin=RETRIED)
    assert again.skipped == 4
    assert {message.message_id for message in cluster.messages(TOPIC)} == {f"id-{number}" for number in range(20)}
    # Another write with the same ids, perhaps of other rows beside them, is not the same write.
    assert write(cluster, batch, batchRows=5, origin=Origin("other")).skipped == 0
    assert counted(cluster) == dict.fromkeys(bodies(20), 2)


def test_delayed_rows_are_known_again_before_and_after_they_arrive(cluster: ThreadCluster) -> None:
    batch = batch_of(body=bodies(100), delay_level=[1] * 100)
    write(cluster, batch)
    assert stored(cluster) == []
    assert write(cluster, batch, origin=RETRIED).skipped == 2
    cluster.advance(2)
    assert counted(cluster) == once(bodies(100))
    assert write(cluster, batch, origin=RETRIED).skipped == 2
    cluster.advance(2)
    assert counted(cluster) == once(bodies(100))


def test_a_topic_whose_queues_hold_batches_is_written_once(cluster: ThreadCluster) -> None:
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    fields |= {"readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "order": "false"}
    fields["attributes"] = "+queue.type=BatchCQ"
    assert ask(cluster.address("broker-a"), RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    write(cluster, *batches(5))
    assert write(cluster, *batches(5), origin=RETRIED).skipped == 5
    assert counted(cluster) == once(bodies(50))


# Brokers that come and go


def test_a_broker_that_restarts_meanwhile_costs_nothing(cluster: ThreadCluster) -> None:
    rows = batches(20)
    writer = writer_for(cluster.name_server, rows[0])
    written = writer.write_as(ORIGIN, then(rows, 10, lambda: cluster.restart("broker-a")))
    assert written.rows == 200
    assert counted(cluster) == once(bodies(200))


@pytest.mark.parametrize("seed", range(6))
def test_of_a_broker_that_lost_its_power_no_row_is_lost(seed: int) -> None:
    with LocalCluster(settings=SYNC, seed=seed) as cluster:
        write_while_it_fails(cluster)
        # What was torn out of a chunk is written again with the whole of it.
        assert set(counted(cluster)) == set(bodies(200))


def test_a_broker_that_was_killed_is_waited_for(tmp_path: Path) -> None:
    with LocalCluster(directory=tmp_path) as cluster:
        write_while_it_fails(cluster)
        assert counted(cluster) == once(bodies(200))


def write_while_it_fails(cluster: ThreadCluster) -> None:
    """Let a broker go in the middle of a task, and come back a moment later."""
    rows = batches(20)
    returning = threading.Timer(0.3, cluster.start, ["broker-a"])

    def cut() -> None:
        cluster.kill("broker-a")
        returning.start()

    writer = writer_for(cluster.name_server, rows[0])
    assert writer.write_as(ORIGIN, then(rows, 10, cut)).rows == 200
    returning.join()
    close_connections()


def test_chunks_go_to_another_broker_if_one_is_away(pair: ThreadCluster) -> None:
    rows = batches(20)
    write(pair, *rows[:4])
    writer = writer_for(pair.name_server, rows[0])
    pair.stop("broker-a")
    assert writer.write_as(Origin("later"), iter(rows[4:])).rows == 160
    assert {message.broker_name for message in pair.messages(TOPIC)} == {"broker-b"}
    pair.start("broker-a")
    assert counted(pair) == once(bodies(200))


def test_rows_for_a_queue_that_is_away_fail_and_are_completed_later(pair: ThreadCluster) -> None:
    batch = batch_of(body=bodies(4), queue_id=[0, 1, 0, 1], broker=["broker-a"] * 2 + ["broker-b"] * 2)
    write(pair, *batches(8))  # all brokers are known
    pair.kill("broker-b")
    with pytest.raises((SendError, SparkSourceError)):
        write(pair, batch, origin=Origin("pinned"), retries=1)
    pair.start("broker-b")
    write(pair, batch, origin=Origin("pinned", attempt=1), retries=10)
    places = collections.Counter(message.body for message in pair.messages(TOPIC))
    assert places == collections.Counter(bodies(80) + bodies(4))


# Connections


def test_connections_are_kept_for_the_next_task_but_not_any_number(cluster: ThreadCluster) -> None:
    with connected(sink_options(nameserver=cluster.name_server)) as first:
        pass
    with connected(sink_options(nameserver=cluster.name_server, topic="Other", batchRows=7)) as again:
        assert again is first
        for seconds in range(MAX_CONNECTIONS):
            with connected(sink_options(nameserver=cluster.name_server, sendTimeoutMs=1000 + seconds)) as other:
                assert other is not first
        # The one that is in use is not closed.
        assert [queue.queue_id for queue in again.queues(TOPIC)] == [0, 1, 2, 3]
    threads = [thread for thread in threading.enumerate() if thread.name == "orbitmq-client"]
    assert len(threads) == 1
    close_connections()
    threads[0].join(30)
    assert not threads[0].is_alive()


def test_a_topic_without_read_permission_can_be_written(cluster: ThreadCluster) -> None:
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    fields |= {"readQueueNums": "2", "writeQueueNums": "2", "perm": "2", "order": "false"}
    assert ask(cluster.address("broker-a"), RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    write(cluster, *batches(3))
    assert write(cluster, *batches(3), origin=RETRIED).skipped == 3


# Windows and refusals


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_chunks_than_allowed_are_in_flight(cluster: ThreadCluster, most: int) -> None:
    def watched() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(30)):
            # All that were sent before, but for the last few, are there.
            assert len(stored(cluster)) >= 10 * (number - most)
            yield batch

    writer = writer_for(cluster.name_server, batches(1)[0], maxInFlight=most)
    assert writer.write_as(ORIGIN, watched()).chunks == 30


def test_a_task_waits_while_no_broker_takes_anything(cluster: ThreadCluster) -> None:
    write(cluster, *batches(1), origin=Origin("before"))
    cluster.stop("broker-a")
    taken = threading.Semaphore(0)
    count = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches(10):
            count += 1
            taken.release()
            yield batch

    writer = writer_for(cluster.name_server, batches(1)[0], maxInFlight=2)
    results: list[Any] = []
    task = threading.Thread(target=lambda: results.append(writer.write_as(ORIGIN, watched())))
    task.start()
    for _ in range(3):
        taken.acquire()
    # Two are in flight, and the third waits for one of them.
    assert count == 3
    cluster.start("broker-a")
    task.join()
    assert results[0].rows == 100
    assert counted(cluster)[b"row 99"] == 1


def test_a_row_that_cannot_be_sent_fails_its_task_before_its_chunk_is_sent(cluster: ThreadCluster) -> None:
    rows = [batch_of(body=bodies(10)), batch_of(body=[*bodies(5, 10), None])]
    with pytest.raises(InvalidMessageError, match="row 15 of its partition: the column body is null"):
        write(cluster, *rows, batchRows=2)
    assert set(stored(cluster)) <= set(bodies(10))


def test_what_a_broker_refuses_fails_the_task_with_its_reason() -> None:
    with LocalCluster(settings={"maxMessageSize": "1000"}) as cluster:
        with pytest.raises(BrokerError, match="the message is illegal"):
            write(cluster, batch_of(body=[b"x" * 2000]))
        close_connections()


def test_a_topic_that_does_not_exist_is_named() -> None:
    with LocalCluster(settings={"autoCreateTopicEnable": "false"}) as cluster:
        with pytest.raises(NoRouteError, match="no broker serves the topic 'Orders'"):
            write(cluster, *batches(1))
        close_connections()


def test_a_cluster_that_does_not_answer_fails_the_task(cluster: ThreadCluster) -> None:
    address = cluster.name_server
    cluster.stop("name-server-a")
    with pytest.raises(NoNameServerError, match=r"^no name server responds"):
        writer_for(address, batches(1)[0], retries=1).write_as(ORIGIN, batches(1))
    with pytest.raises(NoNameServerError, match=r"^no name server responds"):
        writer_for(address, batches(1)[0], retries=0, idempotent="false").write_as(ORIGIN, batches(1))
