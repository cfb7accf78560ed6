"""Messages of many queues that are appended together are stored as they are one by one, to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.message.flags import (
    INNER_BATCH,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from orbitmq.protocol.names import LMQ_PREFIX, SCHEDULE_TOPIC
from orbitmq.store import AppendRefusedError, PutStatus, StoredMessage
from orbitmq.testing.simulation.disk import MemoryDisk
from support.store.stores import LOG_FILE, SYNC, TOPIC, open_small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.store import MessageStore

V4, V6 = bytes((10, 0, 0, 1, 0, 0, 4, 5)), bytes(range(20))
OTHER = "TopicÄ"
LONGEST = 1500

_NAMES = st.sampled_from([b"UNIQ_KEY", b"KEYS", b"TAGS", b"XTAGS", b"DELAY", b"k", b""])
_VALUES = st.sampled_from([b"", b"a", b"a b", b"TAGS\x01x", b"\xff\xfe", b"u1", b"2"])
PROPERTIES = st.lists(st.tuples(_NAMES, _VALUES), max_size=5).map(
    lambda entries: b"".join(name + b"\x01" + value + b"\x02" for name, value in entries)
)
LIGHT = b"INNER_MULTI_DISPATCH\x01%b,%b\x02" % (f"{LMQ_PREFIX}a".encode(), f"{LMQ_PREFIX}b".encode())
SPECIAL = st.sampled_from([LIGHT, b"INNER_MULTI_DISPATCH\x01none\x02", b"k\x01v", b"x\x01" + bytes(33_000)])
BODIES = st.binary(max_size=60) | st.integers(0, LONGEST + 9).map(bytes)
FLAGS = st.sampled_from(
    [0, 0, 0, 1, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, INNER_BATCH, 0x30]
)
NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)
MESSAGES = st.lists(
    st.builds(
        StoredMessage,
        topic=st.sampled_from([TOPIC, OTHER, "T", SCHEDULE_TOPIC, "%RETRY%" + "g" * 130, "a/b", "Batch"]),
        queue_id=st.integers(0, 2),
        body=BODIES,
        properties=PROPERTIES | PROPERTIES | SPECIAL,
        flag=NUMBERS,
        sys_flag=FLAGS,
        born_timestamp=st.integers(0, 1 << 50),
        born_host=st.sampled_from([V4, V6]),
        reconsume_times=NUMBERS,
        prepared_transaction_offset=st.integers(0, 1 << 50),
    ),
    min_size=1,
    max_size=40,
)


def plain(number: int, size: int = 0) -> StoredMessage:
    return StoredMessage(
        TOPIC, number % 3, b"%d" % number + bytes(size), b"UNIQ_KEY\x01u%d\x02" % number, 0, 0, 7, V4, 0
    )


def store_with(**more: Any) -> MessageStore:
    disk = MemoryDisk(check_reservations=False)
    given: dict[str, Any] = {"max_message_size": LONGEST, "batch_topics": {"Batch"}, "max_index_num": 1000}
    return open_small("/store", disk=disk, **(given | more))


def seen(store: MessageStore) -> object:
    """All that a reader can tell."""
    log = [bytes(store.log.files.mapped(base).buffer[:]) for base in store.log.files.bases]
    queues = {}
    for topic in store.queues.topics.values():
        for queue in topic.queues.values():
            units = [queue.read(number, 1) for number in range(queue.first, queue.end)]
            queues[topic.name, queue.queue_id] = units, queue.next_offset, queue.max_physical, queue.is_queued
    assert store.index is not None
    indexed = [(name, bytes(file.mapped.buffer[:])) for name, file in store.index.files()]
    dispatched = store.dispatcher.position, store.dispatcher.last_offset, store.dispatcher.last_store_timestamp
    return log, queues, indexed, dispatched, store.log.end, store.log.last_store_timestamp


def append_one(store: MessageStore, message: StoredMessage) -> PutStatus | None:
    try:
        store.append(message)
    except AppendRefusedError as error:
        return error.status
    return None


def append_together(store: MessageStore, messages: Sequence[StoredMessage]) -> list[PutStatus]:
    """As one who delivers them: together what can be, and the others one by one; returns the refusals."""
    refusals, at = [], 0
    while at < len(messages):
        bulk = store.append_many(messages[at:])
        assert bulk.count == sum(share.count for share in bulk.shares)
        at += bulk.count
        if at < len(messages):
            refusals.append(append_one(store, messages[at]))
            at += 1
    return [refusal for refusal in refusals if refusal is not None]


STORES: dict[str, dict[str, Any]] = {
    "plain": {},
    "sync flush": SYNC,
    "light queues": {"enable_lmq": True, "enable_multi_dispatch": True},
    "crc property": {"enabled_append_prop_crc": True},
    "ipv6": {"broker_ip1": "::1"},
}


@pytest.mark.parametrize("more", STORES.values(), ids=STORES.keys())
@given(messages=MESSAGES, before=st.integers(0, 3))
@example(messages=[plain(number) for number in range(300)], before=0)
@example(messages=[plain(number, LOG_FILE // 4) for number in range(12)], before=1)
@settings(max_examples=60, deadline=None)
def test_messages_appended_together_are_stored_as_one_by_one(
    more: dict[str, Any], messages: list[StoredMessage], before: int
) -> None:
    together, one_by_one = store_with(**more), store_with(**more)
    for store in (together, one_by_one):
        for _ in range(before):
            store.append(StoredMessage(TOPIC, 2, b"before"))
    refused = append_together(together, messages)
    assert refused == [status for message in messages if (status := append_one(one_by_one, message)) is not None]
    assert seen(together) == seen(one_by_one)
    for store in (together, one_by_one):
        store.flush()
    assert seen(together) == seen(one_by_one)
    for store in (together, one_by_one):
        store.abandon()
