"""Whatever a log holds and however it is cut, tasks build the bytes that the broker's own rebuild builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.java import decode_utf8, index_hash, tags_code
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import index_fields
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.store import AppendRefusedError, StoredMessage
from orbitmq.store.index.record_keys import Prefixes, keys_of
from orbitmq.testing import ManualClock
from support.spark.rebuild_harness import assert_built_alike, derived, rebuilt
from support.store.stores import LOG_FILE, T0, edit_log, open_small

if TYPE_CHECKING:
    import pytest

    from orbitmq.store import MessageStore

unhurried = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])

PLAIN = ("Alpha", "Beta", "SCHEDULE_TOPIC_XXXX", "Ünïcode", "L" * 127)
BATCHED = "Batched"
LIGHT = ("%LMQ%x", "%LMQ%y")
SYS_FLAGS = (0, 0, 0, 0, 0x4, 0x8, 0xC)
"""Of transactions: none, prepared, committed, rolled back."""

values = st.sampled_from(
    [b"", b"a", b"key", b"two keys", b"  gaps  here ", "schlüssel".encode(), b"\xff\xfe", b"x" * 40]
)
names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"KEYS2", b"", b"INNER_NUM"])
items = st.tuples(names, st.just(b"\x01") | st.just(b""), values | st.sampled_from([b"1", b"3", b"99"]))
properties = st.lists(items, max_size=5).map(lambda found: b"\x02".join(b"".join(item) for item in found))


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "kind": draw(st.sampled_from(["one", "one", "one", "one", "light", "batch", "gap", "delete"])),
        "topic": draw(st.sampled_from(PLAIN)),
        "queue_id": draw(st.integers(0, 2)),
        "body": draw(st.sampled_from([b"", b"x", b"y" * 100, b"z" * 1500])),
        "properties": draw(properties),
        "sys_flag": draw(st.sampled_from(SYS_FLAGS)),
        "light": draw(st.lists(st.sampled_from(LIGHT), min_size=1, max_size=2)),
        "later": draw(st.sampled_from([0, 1, 700, 5000])),
    }


def append(store: MessageStore, clock: ManualClock, message: dict[str, Any]) -> None:
    topic, queue_id, kind = message["topic"], message["queue_id"], message["kind"]
    clock.advance(message["later"])
    if kind == "batch":
        batch = encode_batch([(0, message["body"], b"")] * 3)
        store.append_inner_batch(StoredMessage(BATCHED, queue_id, batch, message["properties"]))
    elif kind == "delete":
        store.delete_topic(topic)
    else:
        if kind == "gap":
            # As after records that were damaged and mended away.
            store.queues.get(topic, queue_id).next_offset += 2
        light = f"INNER_MULTI_DISPATCH\x01{','.join(message['light'])}\x02".encode() if kind == "light" else b""
        store.append(
            StoredMessage(
                topic, queue_id, message["body"], light + message["properties"], sys_flag=message["sys_flag"]
            )
        )


CONF = {
    "maxHashSlotNum": "7",
    "maxIndexNum": "5",
    "mappedFileSizeConsumeQueue": "200",
    "mapperFileSizeBatchConsumeQueue": "92",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}


@unhurried
@given(sent=st.lists(messages(), max_size=60), chunk=st.integers(1, 3 * LOG_FILE), is_closed=st.booleans())
def test_any_log_is_built_as_by_the_broker(
    tmp_path_factory: pytest.TempPathFactory, sent: list[dict[str, Any]], chunk: int, is_closed: bool
) -> None:
    home = tmp_path_factory.mktemp("any")
    clock = ManualClock(T0)
    store = open_small(
        home / "store",
        clock=clock,
        batch_topics=[BATCHED],
        enable_lmq=True,
        enable_multi_dispatch=True,
        max_hash_slot_num=7,
        max_index_num=5,
        mapper_file_size_batch_consume_queue=92,
    )
    store.append(StoredMessage("Alpha", 0, b"first"))
    store.append_inner_batch(StoredMessage(BATCHED, 0, encode_batch([(0, b"b", b"")] * 2), b""))
    for message in sent:
        try:
            append(store, clock, message)
        except AppendRefusedError:
            continue
    if is_closed:
        store.close()
    else:
        store.flush()
        store.abandon()
    assert_built_alike(home / "store", home / "beside", CONF, chunk_bytes=chunk)


@unhurried
@given(data=st.data(), chunk=st.integers(50, 3 * LOG_FILE))
def test_damage_anywhere_is_refused_or_ends_the_log_as_for_the_broker(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, chunk: int
) -> None:
    home = tmp_path_factory.mktemp("damaged")
    with open_small(home / "store", max_index_num=20) as store:
        for number in range(60):
            store.append(
                StoredMessage("T", number % 3, b"b" * (number * 7 % 200), f"KEYS\x01key{number}\x02".encode())
            )
        end = store.log.end
    conf = {"maxHashSlotNum": "50", "maxIndexNum": "20", "mappedFileSizeConsumeQueue": "200"}
    at = data.draw(st.integers(0, end - 1))
    damage = data.draw(st.binary(min_size=1, max_size=60) | st.integers(1, 400).map(bytes))
    edit_log(home / "store", at, damage[: LOG_FILE - at % LOG_FILE])
    before = derived(home / "store")
    try:
        rebuilt(home / "store", conf, chunk_bytes=chunk, check=True)
    except PipelineError as error:
        assert "orbitmq store rebuild" in str(error)  # noqa: PT017
        assert derived(home / "store") == before
        return
    assert_built_alike(home / "store", home / "beside", conf, chunk_bytes=chunk)


topics = ("A", "Ünïcode", "B" * 30)


@settings(deadline=None, max_examples=200)
@given(records=st.lists(st.tuples(properties, st.integers(0, 2), st.booleans()), max_size=12), many=st.booleans())
def test_keys_and_codes_are_those_of_one_record_after_the_other(
    records: list[tuple[bytes, int, bool]], many: bool
) -> None:
    if many:
        # So many lengths that they are hashed in another way.
        records = records + [(b"KEYS\x01" + b"k" * size + b"\x02", 0, True) for size in range(1, 40)]
    found = keys_of(
        [one for one, _, _ in records],
        np.array([topic for _, topic, _ in records], np.int64),
        [Prefixes.of(topic) for topic in topics],
        np.array([is_indexed for _, _, is_indexed in records], np.bool_),
    )
    codes: list[int] = []
    entries: list[tuple[int, int]] = []
    for number, (one, topic, is_indexed) in enumerate(records):
        tags, keys, unique = index_fields(one)
        codes.append(tags_code(tags) if tags else 0)
        texts = [unique] if unique else []
        texts += [key for key in (keys or b"").split(b" ") if key]
        texts += [b"T#" + tags] if tags else []
        if is_indexed:
            entries += [(number, index_hash(f"{topics[topic]}#{decode_utf8(text)}")) for text in texts]
    assert found.tags_code.tolist() == codes
    assert list(zip(found.record.tolist(), found.key_hash.tolist(), strict=True)) == entries
