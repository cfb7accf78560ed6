"""Appending messages: what is refused and why, what is numbered and how, batches and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import MAGIC_V1, MAGIC_V2, crc_property_of
from orbitmq.store import AppendRefusedError, MessageStore, PutStatus, StoredMessage
from orbitmq.store.append.bulk_appender import Share
from support.store.stores import LOG_FILE, T0, TOPIC, fill_file_but, open_small, read_all, record_at, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Open = Callable[..., MessageStore]

PREPARED, COMMITTED, ROLLED_BACK = 0x4, 0x8, 0xC


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Open]:
    opened: list[MessageStore] = []

    def open_store(**settings: Any) -> MessageStore:
        opened.append(open_small(tmp_path / "store", **settings))
        return opened[-1]

    yield open_store
    for store in opened:
        if store.is_open:
            store.abandon()


@pytest.fixture
def store(open_store: Open) -> MessageStore:
    return open_store()


def refusal(status: PutStatus, match: str) -> pytest.RaisesExc[AppendRefusedError]:
    return pytest.raises(AppendRefusedError, match=match, check=lambda error: error.status is status)


# A message


def test_an_appended_message_is_read_with_everything_it_came_with(store: MessageStore) -> None:
    appended = store.append(
        StoredMessage(
            TOPIC,
            3,
            b"body",
            b"TAGS\x01a\x02",
            flag=-5,
            sys_flag=0x2,
            born_timestamp=T0 - 7,
            born_host=bytes((10, 0, 0, 1, 0, 0, 4, 5)),
            reconsume_times=4,
            prepared_transaction_offset=99,
        )
    )
    assert appended == (0, 91 + len(TOPIC) + 4 + 7, 0, T0)
    (record,) = read_all(store, TOPIC, 3)
    assert (record.body, record.properties, record.flag, record.sys_flag) == (b"body", b"TAGS\x01a\x02", -5, 0x2)
    assert (record.born_timestamp, record.store_timestamp) == (T0 - 7, T0)
    assert record.born_host == bytes((10, 0, 0, 1, 0, 0, 4, 5))
    assert record.store_host == bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
    assert (record.reconsume_times, record.prepared_transaction_offset) == (4, 99)
    assert record.magic == MAGIC_V1


def test_a_message_may_be_given_as_its_fields(store: MessageStore) -> None:
    store.append(TOPIC, 0, b"body", encode({"TAGS": "a"}), reconsume_times=3)
    (record,) = read_all(store)
    assert (record.body, parse(record.properties)["TAGS"], record.reconsume_times) == (b"body", "a", 3)


def test_queue_offsets_count_up_per_queue(store: MessageStore) -> None:
    numbers = [
        store.append(StoredMessage(topic, queue, b"")).queue_offset
        for topic, queue in (("A", 0), ("A", 1), ("B", 0))
    ]
    assert numbers == [0, 0, 0]
    assert [store.append(StoredMessage("A", 0, b"")).queue_offset for _ in range(3)] == [1, 2, 3]
    assert [store.max_offset(topic, queue) for topic, queue in (("A", 0), ("A", 1), ("B", 0))] == [4, 1, 1]


def test_a_long_retry_topic_makes_a_version_2_record(store: MessageStore) -> None:
    topic = "%RETRY%" + "g" * 200
    store.append(StoredMessage(topic, 0, b"body"))
    (record,) = read_all(store, topic)
    assert (record.magic, record.topic) == (MAGIC_V2, topic)


# Refused messages


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "t" * 128, "%RETRY%" + "g" * 249, "ü" * 64])
def test_a_topic_that_cannot_be_stored_is_refused(store: MessageStore, topic: str) -> None:
    with refusal(PutStatus.MESSAGE_ILLEGAL, "topic"):
        store.append(StoredMessage(topic, 0, b""))
    assert store.log.end == 0


def test_a_long_retry_topic_is_refused_where_version_2_is_switched_off(open_store: Open) -> None:
    store = open_store(auto_message_version_on_topic_len=False)
    store.append(StoredMessage("%RETRY%" + "g" * 120, 0, b""))
    with refusal(PutStatus.MESSAGE_ILLEGAL, "topic"):
        store.append(StoredMessage("%RETRY%" + "g" * 121, 0, b""))


@pytest.mark.parametrize("topic", ["t" * 127, "%RETRY%" + "g" * 248])
def test_the_longest_topics_are_accepted(store: MessageStore, topic: str) -> None:
    store.append(StoredMessage(topic, 0, b"body"))
    assert [record.topic for record in read_all(store, topic)] == [topic]


def test_a_negative_queue_is_refused(store: MessageStore) -> None:
    with refusal(PutStatus.MESSAGE_ILLEGAL, "queue id -1"):
        store.append(StoredMessage(TOPIC, -1, b""))


def test_a_body_over_the_limit_is_refused(open_store: Open) -> None:
    store = open_store(max_message_size=1000)
    store.append(StoredMessage(TOPIC, 0, b"b" * 1000))
    end = store.log.end
    with refusal(PutStatus.MESSAGE_ILLEGAL, "1001 bytes is over maxMessageSize=1000"):
        store.append(StoredMessage(TOPIC, 0, b"b" * 1001))
    assert store.log.end == end
    assert store.append(StoredMessage(TOPIC, 0, b"")).queue_offset == 1


@pytest.mark.parametrize(("with_crc", "most"), [(False, 32767), (True, 32747)])
def test_properties_over_the_limit_are_refused(open_store: Open, with_crc: bool, most: int) -> None:
    store = open_store(enabled_append_prop_crc=with_crc, mapped_file_size_commit_log=1 << 17)
    longest = b"k\x01" + b"v" * (most - 3) + b"\x02"
    store.append(StoredMessage(TOPIC, 0, b"", longest))
    with refusal(PutStatus.PROPERTIES_SIZE_EXCEEDED, "are over the limit"):
        store.append(StoredMessage(TOPIC, 0, b"", b"k" + longest))
    if with_crc:
        with refusal(PutStatus.PROPERTIES_SIZE_EXCEEDED, "are over the limit"):
            # One more separator is needed before the CRC.
            store.append(StoredMessage(TOPIC, 0, b"", b"k" + longest[:-1]))
    assert len(read_all(store)) == 1
    assert len(record_at(store, 0).properties) == 32767


def test_a_message_larger_than_a_log_file_is_refused(store: MessageStore) -> None:
    with refusal(PutStatus.MESSAGE_ILLEGAL, "does not fit a log file"):
        store.append(StoredMessage(TOPIC, 0, b"b" * LOG_FILE))
    assert store.append(StoredMessage(TOPIC, 0, b"")).queue_offset == 0
    assert len(read_all(store)) == 1


def test_each_reason_to_refuse_is_cleared_separately(store: MessageStore) -> None:
    gate = store.appender.gate
    gate.close("disk", "the disk is full")
    gate.close("role", "this is a slave")
    for append in every_way_to_append(store):
        with refusal(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full"):
            append()
    gate.open("disk")
    with refusal(PutStatus.SERVICE_NOT_AVAILABLE, "this is a slave"):
        store.append(StoredMessage(TOPIC, 0, b""))
    gate.open("role")
    gate.open("role")
    assert store.append(StoredMessage(TOPIC, 0, b"")).offset == 0


def every_way_to_append(store: MessageStore) -> list[Callable[[], object]]:
    return [
        lambda: store.append(StoredMessage("New", 0, b"")),
        lambda: store.append_batch(StoredMessage("New", 0, encode_batch([(0, b"a", b"")]))),
        lambda: store.append_inner_batch(StoredMessage("New", 0, encode_batch([(0, b"a", b"")]))),
        lambda: store.append_raw(b"raw", 0),
    ]


def test_a_closed_store_refuses_and_leaves_no_trace(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    store.close()
    for append in every_way_to_append(store):
        with refusal(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed"):
            append()
    assert store.queues.names() == []
    assert not (tmp_path / "store" / "commitlog").exists()


def test_a_status_tells_its_response_code() -> None:
    codes = {status.name: status.response_code for status in PutStatus}
    assert codes["PUT_OK"] == 0
    assert codes["MESSAGE_ILLEGAL"] == codes["PROPERTIES_SIZE_EXCEEDED"] == 13
    assert codes["SERVICE_NOT_AVAILABLE"] == 14
    assert codes["CREATE_MAPPED_FILE_FAILED"] == codes["UNKNOWN_ERROR"] == 1
    assert (codes["FLUSH_DISK_TIMEOUT"], codes["FLUSH_SLAVE_TIMEOUT"], codes["SLAVE_NOT_AVAILABLE"]) == (10, 12, 11)


# Transactions


@pytest.mark.parametrize("kind", [PREPARED, ROLLED_BACK])
def test_a_half_of_a_transaction_is_in_the_log_but_in_no_queue(store: MessageStore, kind: int) -> None:
    send(store)
    appended = store.append(StoredMessage(TOPIC, 0, b"half", encode({"UNIQ_KEY": "u"}), sys_flag=kind))
    assert appended.queue_offset == 0
    assert record_at(store, appended.offset).queue_offset == 0
    assert store.max_offset(TOPIC, 0) == 1
    assert send(store) == [appended.offset + appended.size]
    assert len(read_all(store)) == 2
    # Only a rolled back one is not found by its keys.
    assert len(store.query(TOPIC, "u").records) == (1 if kind == PREPARED else 0)


def test_a_committed_message_is_queued(store: MessageStore) -> None:
    assert (
        store.append(
            StoredMessage(TOPIC, 0, b"whole", sys_flag=COMMITTED, prepared_transaction_offset=7)
        ).queue_offset
        == 0
    )
    assert [record.prepared_transaction_offset for record in read_all(store)] == [7]


# The CRC property


@pytest.mark.parametrize("given", [b"", b"k\x01v\x02", b"k\x01v", b"k\x01v\x02__CRC32#\x010000000000\x02"])
def test_the_crc_property_covers_the_record_and_replaces_one_that_was_sent(open_store: Open, given: bytes) -> None:
    store = open_store(enabled_append_prop_crc=True, force_verify_prop_crc=True)
    store.append(StoredMessage(TOPIC, 0, b"body", given))
    store.append_batch(StoredMessage(TOPIC, 0, encode_batch([(0, b"item", given)])))
    for record in read_all(store):
        raw = store.record(record.physical_offset)
        assert raw is not None
        assert bytes(raw[-20:]) == crc_property_of(raw[:-20])
        assert list(parse(record.properties)) == (["k", "__CRC32#"] if given else ["__CRC32#"])
    store.close()
    with open_small(store.config.store_path_root_dir, force_verify_prop_crc=True) as again:
        assert len(read_all(again)) == 2


# Batches


def items(count: int, size: int = 10) -> bytes:
    return encode_batch((number, b"%d" % number * size, encode({"KEYS": f"k{number}"})) for number in range(count))


def test_a_batch_becomes_records_without_a_gap(store: MessageStore) -> None:
    appended = store.append_batch(
        StoredMessage(TOPIC, 1, items(5), sys_flag=0x2, born_timestamp=T0 - 1, reconsume_times=2)
    )
    assert [one.queue_offset for one in appended] == [0, 1, 2, 3, 4]
    assert [one.offset for one in appended[1:]] == [one.offset + one.size for one in appended[:-1]]
    for number, record in enumerate(read_all(store, TOPIC, 1)):
        assert (record.flag, record.body) == (number, b"%d" % number * 10)
        assert (record.sys_flag, record.born_timestamp, record.reconsume_times) == (0x2, T0 - 1, 2)
        assert len(store.query(TOPIC, f"k{number}").records) == 1


def test_a_batch_that_does_not_fit_the_rest_of_a_file_moves_as_a_whole(store: MessageStore) -> None:
    size = sum(one.size for one in store.append_batch(StoredMessage(TOPIC, 1, items(3))))
    fill_file_but(store, size + 8)
    assert store.append_batch(StoredMessage(TOPIC, 1, items(3)))[0].offset == LOG_FILE - size - 8
    send(store)
    fill_file_but(store, size + 7)
    appended = store.append_batch(StoredMessage(TOPIC, 1, items(3)))
    assert appended[0].offset == 2 * LOG_FILE
    # And it is seen at once, like what follows it.
    assert len(read_all(store, TOPIC, 1)) == 9
    send(store, queue_id=1)
    assert len(read_all(store, TOPIC, 1)) == 10


def test_of_a_batch_larger_than_a_file_nothing_is_stored(store: MessageStore) -> None:
    send(store)
    end = store.log.end
    with refusal(PutStatus.MESSAGE_ILLEGAL, "does not fit a log file"):
        store.append_batch(StoredMessage(TOPIC, 0, items(30, size=60)))
    assert store.log.end == end
    assert store.max_offset(TOPIC, 0) == 1


def test_of_a_batch_with_one_item_too_large_nothing_is_stored(open_store: Open) -> None:
    store = open_store(mapped_file_size_commit_log=1 << 17, enabled_append_prop_crc=True)
    batch = encode_batch([(0, b"a", b""), (0, b"b", b"k\x01" + b"v" * 32746)])
    with refusal(PutStatus.PROPERTIES_SIZE_EXCEEDED, "are over the limit"):
        store.append_batch(StoredMessage(TOPIC, 0, batch))
    assert store.log.end == store.max_offset(TOPIC, 0) == 0


@pytest.mark.parametrize(
    ("topic", "batch", "sys_flag", "match"),
    [
        ("%RETRY%g", items(2), 0, "cannot be a retry"),
        (TOPIC, items(2), PREPARED, "nor part of a transaction"),
        (TOPIC, items(2), COMMITTED, "nor part of a transaction"),
        (TOPIC, b"", 0, "the batch is empty"),
        (TOPIC, items(2)[:-1], 0, "the batch cannot be read"),
        (TOPIC, items(2, size=600), 0, "over maxMessageSize"),
    ],
)
def test_a_batch_that_cannot_be_one_is_refused(
    open_store: Open, topic: str, batch: bytes, sys_flag: int, match: str
) -> None:
    store = open_store(max_message_size=1000)
    with refusal(PutStatus.MESSAGE_ILLEGAL, match):
        store.append_batch(StoredMessage(topic, 0, batch, sys_flag=sys_flag))
    assert store.log.end == 0


def test_an_inner_batch_is_one_record_that_counts_for_many(open_store: Open) -> None:
    store = open_store(batch_topics=[TOPIC])
    store.append_inner_batch(StoredMessage(TOPIC, 0, items(3), encode({"UNIQ_KEY": "u"})))
    assert store.append(StoredMessage(TOPIC, 0, b"single")).queue_offset == 3
    appended = store.append_inner_batch(StoredMessage(TOPIC, 0, items(4)))
    assert appended.queue_offset == 4
    records = read_all(store)
    assert [record.sys_flag for record in records] == [0xC0, 0, 0xC0]
    assert [parse(record.properties).get("INNER_NUM") for record in records] == ["3", None, "4"]
    assert [parse(record.properties).get("INNER_BASE") for record in records] == ["0", None, "4"]
    assert store.max_offset(TOPIC, 0) == 8


def test_an_inner_batch_needs_a_batch_topic(store: MessageStore) -> None:
    with refusal(PutStatus.MESSAGE_ILLEGAL, "no queue.type=BatchCQ"):
        store.append_inner_batch(StoredMessage(TOPIC, 0, items(2)))
    with refusal(PutStatus.MESSAGE_ILLEGAL, "needs a topic with queue.type=BatchCQ"):
        store.append(StoredMessage(TOPIC, 0, items(2), sys_flag=0x80))


def test_an_inner_batch_that_a_queue_unit_cannot_count_is_refused(open_store: Open) -> None:
    store = open_store(batch_topics=[TOPIC], mapped_file_size_commit_log=1 << 20)
    with refusal(PutStatus.MESSAGE_ILLEGAL, "32768 messages is over the limit"):
        store.append_inner_batch(StoredMessage(TOPIC, 0, encode_batch([(0, b"", b"")] * 32768)))
    store.append_inner_batch(StoredMessage(TOPIC, 0, encode_batch([(0, b"", b"")] * 32767)))
    assert store.max_offset(TOPIC, 0) == 32767


# Many messages of many queues


def message(queue_id: int, body: bytes = b"b", topic: str = TOPIC) -> StoredMessage:
    return StoredMessage(topic, queue_id, body, b"UNIQ_KEY\x01u\x02", 0, 0, T0, bytes(8), 0)


def test_messages_of_many_queues_are_appended_together(store: MessageStore) -> None:
    bulk = store.append_many([message(0), message(1, b"bb"), message(0, topic="Other"), message(0)])
    records = [record_at(store, 0)]
    while len(records) < 4:
        records.append(record_at(store, records[-1].physical_offset + records[-1].size))
    assert [(one.topic, one.queue_id, one.queue_offset, one.body) for one in records] == [
        (TOPIC, 0, 0, b"b"),
        (TOPIC, 1, 0, b"bb"),
        ("Other", 0, 0, b"b"),
        (TOPIC, 0, 1, b"b"),
    ]
    assert bulk.count == 4
    assert bulk.shares == [
        Share(TOPIC, 0, 2, records[0].size + records[3].size),
        Share(TOPIC, 1, 1, records[1].size),
        Share("Other", 0, 1, records[2].size),
    ]


def test_those_before_one_that_is_refused_are_appended(store: MessageStore) -> None:
    too_long = bytes(store.config.max_message_size + 1)
    assert store.append_many([message(0), message(1), message(0, too_long), message(0)]).count == 2
    assert [record.queue_offset for record in read_all(store)] == [0]


def test_bulk_append_is_refused_while_the_store_refuses_messages(store: MessageStore) -> None:
    store.appender.gate.close("test", "why not")
    assert store.append_many([message(0)]).count == 0
    assert store.log.end == 0


def test_a_queue_is_notified_once_of_a_bulk_append(store: MessageStore) -> None:
    told: list[tuple[int, int]] = []
    store.dispatcher.on_arrival = lambda queue, _code, _time: told.append((queue.queue_id, queue.end))
    store.append_many([message(0), message(1), message(0), message(0)])
    assert told == [(0, 3), (1, 1)]
