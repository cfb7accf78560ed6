"""Rows of any kind become the messages that one would make of them one by one, and always the same."""

from __future__ import annotations

import collections
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.client.producer.queue_selector import index_by_hash
from support.spark.sink_harness import batch_of, chunks_of, messages_in, sent

TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=6)
MAPS = st.dictionaries(TEXTS.filter(bool), st.none() | TEXTS, max_size=3)

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(min_size=1, max_size=300),
            "topic": st.sampled_from(["A", "B"]),
            "tags": st.none() | TEXTS,
            "keys": st.none() | st.lists(st.none() | TEXTS.filter(lambda key: " " not in key), max_size=3),
            "properties": st.none() | MAPS,
            "sharding_key": st.none() | TEXTS,
            "delay_level": st.none() | st.sampled_from([0, 1, 18]),
            "unique_id": st.none() | TEXTS,
        }
    ),
    max_size=30,
)


def as_message(row: dict[str, Any]) -> tuple[str, bytes, tuple[tuple[str, str], ...]]:
    """What a row has to become, but for a made id."""
    wanted = {name: value for name, value in (row["properties"] or {}).items() if value}
    wanted |= {
        "TAGS": row["tags"] or "",
        "KEYS": " ".join(key for key in row["keys"] or () if key),
        "__SHARDINGKEY": row["sharding_key"] or "",
        "DELAY": str(row["delay_level"] or ""),
        "UNIQ_KEY": row["unique_id"] or "",
    }
    return row["topic"], row["body"], tuple(sorted((name, value) for name, value in wanted.items() if value))


def as_sent(topic: str, body: bytes, properties: dict[str, str], own_ids: set[str]) -> tuple[Any, ...]:
    kept = {
        name: value
        for name, value in properties.items()
        if name != "ORBITMQ_ROW_ID" and (name != "UNIQ_KEY" or value in own_ids)
    }
    return topic, body, tuple(sorted(kept.items()))


def batch_from(rows: list[dict[str, Any]]) -> Any:
    names = ("body", "topic", "tags", "keys", "properties", "sharding_key", "delay_level", "unique_id")
    return batch_of(**{name: [row[name] for row in rows] for name in names})


@given(ROWS, st.integers(1, 9), st.integers(0, 30))
@settings(max_examples=200, deadline=None)
def test_rows_become_the_messages_that_they_describe(rows: list[dict[str, Any]], most: int, cut: int) -> None:
    batch = batch_from(rows)
    parts = [batch.slice(0, cut), batch.slice(min(cut, len(rows)))]
    chunks = chunks_of(parts, topic=None, batchRows=most, batchBytes=1024)
    own_ids = {row["unique_id"] for row in rows if row["unique_id"]}
    found = [
        as_sent(chunk.topic, body, properties, own_ids)
        for chunk in chunks
        for body, properties in messages_in(chunk)
    ]
    assert collections.Counter(found) == collections.Counter(map(as_message, rows))
    assert all(chunk.rows <= max(most, len(chunk.alone)) for chunk in chunks)
    assert chunks == chunks_of(parts, topic=None, batchRows=most, batchBytes=1024)


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_no_two_made_ids_are_equal_and_those_with_a_key_go_to_its_queue(rows: list[dict[str, Any]]) -> None:
    chunks = chunks_of(batch_from(rows), topic=None, batchRows=3)
    made = [properties["UNIQ_KEY"] for _, properties in sent(chunks)]
    own = [row["unique_id"] for row in rows if row["unique_id"]]
    assert len(set(made) - set(own)) == len(rows) - len(own)
    for chunk in chunks:
        for _, properties in messages_in(chunk):
            key = properties.get("__SHARDINGKEY")
            assert (chunk.queue is None) == (key is None)
            assert chunk.queue is None or chunk.queue.queue_id == index_by_hash(key, 4)
