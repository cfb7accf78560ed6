"""Long batches in the store: what is refused, where they begin, and what few of them need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.store import AppendRefusedError, MessageStore, PutStatus, StoredMessage
from orbitmq.store.append.batch_encoder import FEW, values_in
from support.store.stores import LOG_FILE, TOPIC, fill_file_but, open_small, read_all, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Open = Callable[..., MessageStore]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Open]:
    opened: list[MessageStore] = []

    def open_store(**settings: Any) -> MessageStore:
        opened.append(open_small(tmp_path / "store", **settings))
        return opened[-1]

    yield open_store
    for store in opened:
        store.abandon()


def items(count: int, **properties: str) -> bytes:
    return encode_batch((number, b"%04d" % number, encode(properties)) for number in range(count))


def test_a_long_batch_moves_to_the_next_file_as_a_whole(open_store: Open) -> None:
    store = open_store()
    size = store.append_batch(StoredMessage(TOPIC, 1, items(FEW))).size
    fill_file_but(store, size + 8)
    assert store.append_batch(StoredMessage(TOPIC, 1, items(FEW)))[0].offset == LOG_FILE - size - 8
    send(store)
    fill_file_but(store, size + 7)
    assert store.append_batch(StoredMessage(TOPIC, 1, items(FEW)))[0].offset == 2 * LOG_FILE
    assert len(read_all(store, TOPIC, 1)) == 3 * FEW
    assert store.append_batch(StoredMessage(TOPIC, 1, items(FEW)))[-1].queue_offset == 4 * FEW - 1
    assert len(read_all(store, TOPIC, 1)) == 4 * FEW


def test_of_a_long_batch_that_is_larger_than_a_file_nothing_is_stored(open_store: Open) -> None:
    store = open_store()
    with pytest.raises(AppendRefusedError, match="does not fit a log file"):
        store.append_batch(StoredMessage(TOPIC, 0, items(100)))
    assert (store.log.end, store.max_offset(TOPIC, 0)) == (0, 0)
    assert store.append_batch(StoredMessage(TOPIC, 0, items(FEW)))[0].queue_offset == 0


def test_of_a_long_batch_with_too_many_properties_nothing_is_stored(open_store: Open) -> None:
    store = open_store(mapped_file_size_commit_log=1 << 17)
    # A length is signed, so that one beyond the limit of a record cannot even be said.
    batch = items(FEW) + encode_batch([(0, b"a", b"k\x01" + b"v" * 32765)])
    assert len(store.append_batch(StoredMessage(TOPIC, 0, batch))) == FEW + 1
    with pytest.raises(AppendRefusedError, match="cannot be read") as refused:
        store.append_batch(StoredMessage(TOPIC, 0, batch[:-32769] + b"\xff\xff" + batch[-32767:]))
    assert refused.value.status is PutStatus.MESSAGE_ILLEGAL
    assert store.max_offset(TOPIC, 0) == FEW + 1


def test_a_long_batch_notifies_the_listener_of_its_queue(open_store: Open) -> None:
    store = open_store()
    woken: list[tuple[str, int]] = []
    store.dispatcher.on_arrival = lambda queue, *_: woken.append((queue.topic, queue.queue_id))
    store.append_batch(StoredMessage(TOPIC, 3, items(FEW)))
    assert set(woken) == {(TOPIC, 3)}


def test_the_crc_property_is_put_on_each_message_of_a_long_batch(open_store: Open) -> None:
    store = open_store(enabled_append_prop_crc=True, force_verify_prop_crc=True)
    store.append_batch(StoredMessage(TOPIC, 0, items(FEW, k="v")))
    assert [list(parse(record.properties)) for record in read_all(store)] == [["k", "__CRC32#"]] * FEW


def test_the_messages_of_a_long_batch_go_to_light_queues_too(open_store: Open) -> None:
    store = open_store(enable_lmq=True, enable_multi_dispatch=True, mapped_file_size_commit_log=1 << 16)
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
    batch = items(FEW) + encode_batch([(0, b"light", encode(properties))])
    store.append_batch(StoredMessage(TOPIC, 0, batch))
    assert store.max_offset(TOPIC, 0) == FEW + 1
    assert [record.body for record in read_all(store, "%LMQ%a")] == [b"light"]


def test_a_long_batch_may_begin_the_numbers_of_a_queue_again(open_store: Open) -> None:
    store = open_store()
    store.append_batch(StoredMessage(TOPIC, 0, items(FEW + 3)))
    store.queues.get(TOPIC, 0).next_offset = 0  # as of a topic that was deleted and made anew
    assert store.append_batch(StoredMessage(TOPIC, 0, items(FEW)))[0].queue_offset == 0
    assert store.max_offset(TOPIC, 0) == FEW
    assert len(read_all(store)) == FEW


def test_a_part_of_what_was_appended_can_be_taken(open_store: Open) -> None:
    appended = open_store().append_batch(StoredMessage(TOPIC, 0, items(FEW)))
    assert [one.queue_offset for one in appended[2:4]] == [2, 3]
    assert appended[-1].queue_offset == FEW - 1
    with pytest.raises(IndexError):
        appended[FEW]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ([b"A\x01x\x02", b"A\x01y\x02B\x01z\x02"], [b"x", b"y"]),
        ([b"A\x01x\x02", b"A\x01y"], [b"x", b"y"]),
        ([b"A\x01x\x02", b"A\x01\x02"], [b"x", None]),
        ([b"A\x01x\x02A\x01y\x02", b"B\x01z\x02"], [b"y", None]),
        ([b"AA\x01x\x02", b"B\x01A\x01z\x02"], [None, None]),
        ([b"", b"A"], [None, None]),
    ],
)
def test_a_property_is_found_in_each_message_of_a_batch(
    properties: list[bytes], expected: list[bytes | None]
) -> None:
    assert values_in(b"".join(properties), properties, b"A") == expected
