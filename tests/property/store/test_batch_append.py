"""A batch that is stored at once is stored as its messages are one by one, to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.store import StoredMessage
from orbitmq.store.append.batch_encoder import FEW
from orbitmq.store.index.batch_keys import MANY
from orbitmq.testing.simulation.disk import MemoryDisk
from support.store.stores import SYNC, TOPIC, open_small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.store import MessageStore

Item = tuple[int, bytes, bytes]

V4, V6 = bytes((10, 0, 0, 1, 0, 0, 4, 5)), bytes(range(20))

_NAMES = st.sampled_from([b"UNIQ_KEY", b"KEYS", b"TAGS", b"XTAGS", b"k", b""])
_VALUES = st.sampled_from([b"", b"a", b"a b", b"TAGS\x01x", b"\xff\xfe", b"u1", b"u2"])
_ENTRIES = st.lists(st.tuples(_NAMES, _VALUES), max_size=5)


def text_of(entries: list[tuple[bytes, bytes]], is_ended: bool) -> bytes:
    text = b"".join(name + b"\x01" + value + b"\x02" for name, value in entries)
    return text if is_ended else text[:-1]


PROPERTIES = st.builds(text_of, _ENTRIES, st.booleans()) | st.integers(0, 99).map(
    lambda number: b"UNIQ_KEY\x01%032X\x02TAGS\x01a\x02" % number
)
BODIES = st.binary(max_size=40) | st.just(b"UNIQ_KEY\x01b\x02")
ITEMS = st.lists(
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), BODIES, PROPERTIES), min_size=FEW, max_size=3 * FEW
)
ALIKE = st.lists(st.binary(min_size=1, max_size=9), min_size=FEW, max_size=3 * FEW).map(
    lambda bodies: [(0, body, b"UNIQ_KEY\x01%032X\x02" % number) for number, body in enumerate(bodies)]
)
"""As Spark writes them, whose properties all begin alike."""

_PLAIN = st.lists(
    st.tuples(st.sampled_from([b"UNIQ_KEY", b"KEYS", b"TAGS", b"k"]), st.sampled_from([b"a", b"bb", b"u1", b"u2"])),
    max_size=4,
    unique_by=lambda entry: entry[0],
).map(lambda entries: text_of(entries, is_ended=True))
LONG = st.lists(st.tuples(st.integers(0, 9), BODIES, _PLAIN) | ITEMS.map(lambda items: items[0]), min_size=1).map(
    lambda items: items * -(-MANY // len(items))
)
LONG_ALIKE = st.integers(MANY, 3 * MANY).map(
    lambda count: [
        (number % 3, b"%08d" % number, b"UNIQ_KEY\x01%032X\x02TAGS\x01t%d\x02" % (number, number % 7))
        for number in range(count)
    ]
)
"""So many that they are read as columns."""

KEYS = ("a", "b", "u1", "u2", *(f"{number:032X}" for number in range(3)))


def store_with(**more: Any) -> MessageStore:
    settings: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 14} | more
    return open_small("/store", disk=MemoryDisk(check_reservations=False), **settings)


def seen(store: MessageStore) -> object:
    """All that a reader can tell."""
    end = store.log.end
    log = bytes(store.log.slice(0, end) or b"") if end else b""
    queue = store.queues.get(TOPIC, 2)
    units = [queue.read(number, 1) for number in range(queue.first, queue.end)]
    found = {(key, kind): records(store, key, kind) for key in KEYS for kind in ("K", "T")}
    assert store.index is not None
    indexed = [(name, bytes(file.mapped.buffer[:])) for name, file in store.index.files()]
    dispatched = store.dispatcher.position, store.dispatcher.last_offset, store.dispatcher.last_store_timestamp
    return log, units, found, indexed, dispatched, queue.next_offset, store.log.last_store_timestamp


def records(store: MessageStore, key: str, kind: str) -> list[bytes]:
    return [bytes(record) for record in store.query(TOPIC, key, index_type=kind).records]


@given(ITEMS | ALIKE, st.sampled_from([V4, V6]), st.integers(0, 3), st.integers(0, 5))
@settings(max_examples=150)
def test_a_batch_is_stored_as_its_messages_are(
    items: Sequence[Item], born_host: bytes, sys_flag: int, before: int
) -> None:
    at_once, one_by_one = store_with(), store_with()
    common: dict[str, Any] = {
        "sys_flag": sys_flag,
        "born_timestamp": 77,
        "born_host": born_host,
        "reconsume_times": 3,
    }
    for store in (at_once, one_by_one):
        for _ in range(before):
            store.append(StoredMessage(TOPIC, 2, b"before"))
    appended = at_once.append_batch(StoredMessage(TOPIC, 2, encode_batch(items), **common))
    singly = [
        one_by_one.append(StoredMessage(TOPIC, 2, body, properties, flag=flag, **common))
        for flag, body, properties in items
    ]
    assert list(appended) == singly
    assert appended.offsets == [one.offset for one in singly]
    assert appended.size == sum(one.size for one in singly)
    assert seen(at_once) == seen(one_by_one)
    for store in (at_once, one_by_one):
        store.abandon()


@given(ITEMS)
@settings(max_examples=30)
def test_a_batch_that_waits_for_a_flush_is_stored_as_its_messages_are(items: Sequence[Item]) -> None:
    at_once, one_by_one = store_with(**SYNC), store_with(**SYNC)
    at_once.append_batch(StoredMessage(TOPIC, 2, encode_batch(items)))
    for flag, body, properties in items:
        one_by_one.append(StoredMessage(TOPIC, 2, body, properties, flag=flag))
    assert seen(at_once) == seen(one_by_one)
    for store in (at_once, one_by_one):
        store.abandon()


@given(LONG | LONG_ALIKE, st.sampled_from([V4, V6]), st.integers(0, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_long_batch_is_stored_as_its_messages_are(
    items: Sequence[Item], born_host: bytes, before: int, is_again: bool
) -> None:
    at_once, one_by_one = (store_with(mapped_file_size_commit_log=1 << 18) for _ in range(2))
    for store in (at_once, one_by_one):
        for _ in range(before):
            store.append(StoredMessage(TOPIC, 2, b"before", b"UNIQ_KEY\x01u1\x02TAGS\x01a\x02"))
    for _ in range(1 + is_again):
        appended = at_once.append_batch(StoredMessage(TOPIC, 2, encode_batch(items), born_host=born_host))
        singly = [
            one_by_one.append(StoredMessage(TOPIC, 2, body, properties, flag=flag, born_host=born_host))
            for flag, body, properties in items
        ]
        assert list(appended) == singly
    assert seen(at_once) == seen(one_by_one)
    for store in (at_once, one_by_one):
        store.abandon()
