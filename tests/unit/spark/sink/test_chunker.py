"""Chunks of rows: their limits, their queues, and their ids."""

from __future__ import annotations

import pytest

from orbitmq.client.producer.queue_selector import index_by_hash
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.sink.message_ids import Origin
from support.spark.sink_harness import batch_of, bodies, chunks_of, messages_in, sent


def test_a_chunk_has_no_more_rows_and_bytes_than_allowed() -> None:
    batch = batch_of(body=[b"x" * 100] * 100)
    assert [chunk.rows for chunk in chunks_of(batch, batchRows=40)] == [40, 40, 20]
    by_size = chunks_of(batch, batchBytes=1024)
    assert all(len(chunk.body) <= 1024 for chunk in by_size)
    assert sum(chunk.rows for chunk in by_size) == 100
    assert [chunk.number for chunk in by_size] == list(range(len(by_size)))


def test_a_row_larger_than_a_chunk_has_one_for_itself() -> None:
    large = b"x" * 3000
    chunks = chunks_of(batch_of(body=[b"a", large, b"b"]), batchBytes=1024, maxMessageSize=4096)
    assert [[body for body, _ in messages_in(chunk)] for chunk in chunks] == [[b"a"], [large], [b"b"]]
    assert not any(chunk.alone for chunk in chunks)


def test_a_row_that_fits_no_batch_is_sent_alone() -> None:
    largest = b"x" * 4096
    (chunk,) = chunks_of(batch_of(body=[largest]), batchBytes=1024, maxMessageSize=4096)
    assert [message.body for message in chunk.alone] == [largest]
    assert not chunk.is_delayed


def test_rows_of_one_topic_go_together_in_their_order() -> None:
    batch = batch_of(body=bodies(6), topic=["b", "a", "b", "c", "a", "b"])
    chunks = chunks_of(batch, topic=None)
    found = [(chunk.topic, [body for body, _ in messages_in(chunk)]) for chunk in chunks]
    assert found == [("b", [b"row 0", b"row 2", b"row 5"]), ("a", [b"row 1", b"row 4"]), ("c", [b"row 3"])]


def test_rows_with_a_sharding_key_go_where_java_sends_them() -> None:
    keys = [f"order-{number % 7}" for number in range(50)]
    chunks = chunks_of(batch_of(body=bodies(50), sharding_key=keys))
    for chunk in chunks:
        assert chunk.queue is not None
        for _, properties in messages_in(chunk):
            assert index_by_hash(properties["__SHARDINGKEY"], 4) == chunk.queue.queue_id
    for key in set(keys):
        rows = [body for body, properties in sent(chunks) if properties["__SHARDINGKEY"] == key]
        assert rows == [body for body, given in zip(bodies(50), keys, strict=True) if given == key]


def test_a_sharding_key_among_properties_counts_too() -> None:
    batch = batch_of(body=bodies(3), properties=[{"__SHARDINGKEY": "a"}, {"b": "c"}, None])
    pinned, free = chunks_of(batch)
    assert pinned.queue is not None
    assert pinned.queue.queue_id == index_by_hash("a", 4)
    assert (free.queue, free.rows) == (None, 2)


def test_rows_may_name_their_queue() -> None:
    batch = batch_of(body=bodies(4), queue_id=[3, None, 0, 3], sharding_key=["a", None, None, None])
    found = {
        None if chunk.queue is None else chunk.queue.queue_id: [body for body, _ in messages_in(chunk)]
        for chunk in chunks_of(batch)
    }
    assert found == {3: [b"row 0", b"row 3"], None: [b"row 1"], 0: [b"row 2"]}


def test_a_queue_of_a_broker_that_is_not_there_at_present_is_waited_for() -> None:
    batch = batch_of(body=bodies(3), queue_id=[9, 1, 9], broker=["away", "broker-a", "away"])
    away, here = chunks_of(batch)
    assert (away.queue, away.rows) == (MessageQueue("Orders", "away", 9), 2)
    assert here.queue == MessageQueue("Orders", "broker-a", 1)


def test_where_rows_of_a_topic_came_from_is_not_where_they_go() -> None:
    batch = batch_of(body=bodies(2), queue_id=[3, 2], queue_offset=[7, 8])
    (chunk,) = chunks_of(batch)
    assert chunk.queue is None
    kept = [chunk.queue for chunk in chunks_of(batch, keepQueue="true")]
    assert [queue and queue.queue_id for queue in kept] == [3, 2]


def test_delayed_rows_are_in_chunks_that_are_not_long() -> None:
    chunks = chunks_of(batch_of(body=bodies(150), delay_level=[1] * 150))
    assert [len(chunk.alone) for chunk in chunks] == [64, 64, 22]
    assert [body for body, _ in sent(chunks)] == bodies(150)


# What a chunk is known by


def keys_of(origin: Origin, *rows: bytes, **options: object) -> list[str]:
    return [chunk.unique_key for chunk in chunks_of(batch_of(body=list(rows)), origin, **options)]


def test_the_same_rows_of_a_task_have_the_same_ids_in_every_attempt() -> None:
    first, again = Origin("query", "7", 3, attempt=0), Origin("query", "7", 3, attempt=2)
    assert keys_of(first, *bodies(10), batchRows=4) == keys_of(again, *bodies(10), batchRows=4)


@pytest.mark.parametrize(
    "other", [Origin("other", "7", 3), Origin("query", "8", 3), Origin("query", "7", 4), Origin("query", None, 3)]
)
def test_another_task_has_other_ids(other: Origin) -> None:
    assert not set(keys_of(Origin("query", "7", 3), *bodies(10))) & set(keys_of(other, *bodies(10)))


def test_equal_rows_in_two_chunks_have_different_ids() -> None:
    ids = [properties["UNIQ_KEY"] for _, properties in sent(chunks_of(batch_of(body=[b"a"] * 10), batchRows=2))]
    assert len(set(ids)) == 10


def test_a_chunk_with_other_rows_is_another_chunk() -> None:
    origin = Origin("write")
    known = keys_of(origin, b"a", b"b")
    assert keys_of(origin, b"b", b"a") != known
    assert keys_of(origin, b"a") != known
    assert keys_of(origin, b"a", b"b", topic="Other") != known


def test_properties_are_part_of_what_a_chunk_is_known_by() -> None:
    plain = chunks_of(batch_of(body=bodies(1), tags=["a"]))
    other = chunks_of(batch_of(body=bodies(1), tags=["b"]))
    assert plain[0].unique_key != other[0].unique_key


def test_chunks_do_not_depend_on_where_batches_begin_in_memory() -> None:
    whole = batch_of(body=bodies(20), tags=["t"] * 20)
    once = chunks_of([whole.slice(0, 10), whole.slice(10)])
    again = chunks_of([batch_of(body=bodies(10), tags=["t"] * 10), batch_of(body=bodies(10, 10), tags=["t"] * 10)])
    assert once == again
