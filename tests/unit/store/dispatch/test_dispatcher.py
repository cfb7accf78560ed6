"""From the log to the queues: when an appended record can be seen, in which queues, and on a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import decode_record
from orbitmq.store import AppendRefusedError, MessageStore, PutStatus, StoredMessage
from orbitmq.testing import ManualClock
from support.store.stores import SYNC, T0, TOPIC, offsets_of, open_small, read_all, record_at, send, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Open = Callable[..., MessageStore]

PREPARED = 0x4
LIGHT: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True}


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


# Light queues


def send_light(store: MessageStore, *names: str, sys_flag: int = 0) -> str | None:
    properties = encode({"INNER_MULTI_DISPATCH": ",".join(names)})
    appended = store.append(StoredMessage(TOPIC, 0, b"", properties, sys_flag=sys_flag))
    return parse(record_at(store, appended.offset).properties).get("INNER_MULTI_QUEUE_OFFSET")


@pytest.mark.parametrize("policy", [{}, SYNC])
def test_a_message_gets_the_next_offset_of_every_light_queue_it_names(
    open_store: Open, policy: dict[str, Any]
) -> None:
    store = open_store(**LIGHT, **policy)
    given = [send_light(store, *names) for names in (["%LMQ%a", "%LMQ%b"], ["%LMQ%b"], ["%LMQ%a", "%LMQ%b"])]
    assert given == ["0,0", "1", "1,2"]
    store.flush()
    assert [len(read_all(store, name)) for name in ("%LMQ%a", "%LMQ%b", TOPIC)] == [2, 3, 3]
    assert send_light(store, "%LMQ%b") == "3"


def test_light_queues_go_on_where_they_were_after_a_restart(open_store: Open) -> None:
    store = open_store(**LIGHT)
    for _ in range(3):
        send_light(store, "%LMQ%a")
    store.close()
    store = open_store(**LIGHT)
    assert send_light(store, "%LMQ%a") == "3"
    assert len(read_all(store, "%LMQ%a")) == 4


def test_names_that_are_no_light_queues_are_left_alone(open_store: Open) -> None:
    store = open_store(**LIGHT)
    assert send_light(store, "Other") is None
    assert send_light(store, "%LMQ%a/b") is None
    assert send_light(store, "%LMQ%a", sys_flag=PREPARED) is None
    assert store.queues.names() == [TOPIC]


def test_light_queues_are_an_option(store: MessageStore) -> None:
    assert send_light(store, "%LMQ%a") is None
    assert store.queues.names() == [TOPIC]


def test_more_light_queues_than_allowed_are_refused_and_those_there_are_go_on(open_store: Open) -> None:
    store = open_store(**LIGHT, max_lmq_consume_queue_num=2)
    send_light(store, "%LMQ%a", "%LMQ%b")
    for _ in range(2):
        with pytest.raises(AppendRefusedError, match="more than maxLmqConsumeQueueNum=2") as refused:
            send_light(store, "%LMQ%a", "%LMQ%c")
        assert refused.value.status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    assert send_light(store, "%LMQ%a") == "1"
    assert store.queues.names() == ["%LMQ%a", "%LMQ%b", TOPIC]


# When a message can be seen


def test_under_sync_flush_a_message_is_seen_after_the_flush(open_store: Open) -> None:
    store = open_store(**SYNC)
    assert [store.append(StoredMessage(TOPIC, 0, b"")).queue_offset for _ in range(3)] == [0, 1, 2]
    assert store.max_offset(TOPIC, 0) == 0
    assert store.catch_up() == 0
    assert store.flush() == store.log.end == store.visible_end
    assert store.max_offset(TOPIC, 0) == 3
    assert len(read_all(store)) == 3


def test_a_pooled_message_is_seen_after_the_commit_and_lost_by_a_crash_before_it(open_store: Open) -> None:
    store = open_store(transient_store_pool_enable=True)
    send(store, 3)
    assert store.max_offset(TOPIC, 0) == 0
    assert store.record(0) is None
    store.log.commit()
    assert store.catch_up() == 3
    assert len(read_all(store)) == 3
    send(store, 2)
    store.abandon()
    store = open_store(transient_store_pool_enable=True)
    assert len(read_all(store)) == 3
    assert store.append(StoredMessage(TOPIC, 0, b"")).queue_offset == 3


def test_closing_commits_pooled_messages(open_store: Open) -> None:
    store = open_store(transient_store_pool_enable=True, transient_store_pool_size=2)
    send(store, 100)
    store.close()
    assert len(read_all(open_store())) == 100


def test_catching_up_stops_at_its_limit(open_store: Open) -> None:
    store = open_store(**SYNC)
    send(store, 5)
    store.log.mark_flushed(store.log.end)
    assert store.catch_up(2) == 2
    assert store.max_offset(TOPIC, 0) == 2
    assert store.catch_up() == 3
    assert store.catch_up() == 0


def test_arrivals_are_announced_with_queue_tag_and_time(open_store: Open) -> None:
    store = open_store(**LIGHT)
    seen: list[tuple[str, int, int, int]] = []
    store.dispatcher.on_arrival = lambda queue, code, time: seen.append((queue.topic, queue.max_offset, code, time))
    send(store, TAGS="TagA")
    send(store, INNER_MULTI_DISPATCH="%LMQ%a")
    store.append(StoredMessage(TOPIC, 0, b"", sys_flag=PREPARED))
    assert seen == [(TOPIC, 1, 2598919, T0), (TOPIC, 2, 0, T0), ("%LMQ%a", 1, 0, T0)]


def test_the_unit_of_a_deferred_message_has_its_delivery_time(store: MessageStore) -> None:
    levels = {"1": 1000, "2": 5000, "18": 7_200_000, "99": 7_200_000}
    for level, delay in levels.items():
        send(store, topic="SCHEDULE_TOPIC_XXXX", DELAY=level, TAGS="TagA")
        queue = store.queues.get("SCHEDULE_TOPIC_XXXX", 0)
        unit = queue.unit(queue.max_offset - 1)
        assert unit is not None
        assert unit[2] == T0 + delay


# A replica


def master_bytes(open_store: Open, tmp_path: Path) -> tuple[bytes, list[int]]:
    """The log of a store with files that end in blanks, and where its records are."""
    master = open_store()
    offsets = [offset for number in range(12) for offset in send(master, size=100 * number, UNIQ_KEY=f"u{number}")]
    end = master.log.end
    master.close()
    return b"".join(tree(tmp_path / "store", "commitlog").values())[:end], offsets


@pytest.mark.parametrize("piece", [1, 50, 333, 1024, 5000])
def test_a_replica_shows_each_record_as_soon_as_it_is_whole(open_store: Open, tmp_path: Path, piece: int) -> None:
    data, offsets = master_bytes(open_store, tmp_path)
    ends = [*offsets[1:], len(data)]
    with open_small(tmp_path / "replica") as replica:
        for start in range(0, len(data), piece):
            replica.append_raw(data[start : start + piece], start)
            replica.catch_up()
            arrived = min(start + piece, len(data))
            records = [decode_record(data, offset).size + offset for offset in offsets]
            assert replica.max_offset(TOPIC, 0) == sum(end <= arrived for end in records)
        assert offsets_of(read_all(replica)) == offsets
        assert len(replica.query(TOPIC, "u7").records) == 1
        assert ends[-1] == replica.log.end
    replicated = b"".join(tree(tmp_path / "replica", "commitlog").values())
    assert replicated[: len(data)] == data


def test_a_replica_accepts_bytes_only_at_the_end_of_its_log(open_store: Open, tmp_path: Path) -> None:
    data, _ = master_bytes(open_store, tmp_path)
    with open_small(tmp_path / "replica") as replica:
        replica.append_raw(data[:100], 0)
        for wrong in (0, 99, 101, 4096):
            with pytest.raises(AppendRefusedError, match="while the log ends at 100"):
                replica.append_raw(data[wrong : wrong + 10], wrong)


def test_a_replica_closed_within_a_record_continues_before_it(open_store: Open, tmp_path: Path) -> None:
    data, offsets = master_bytes(open_store, tmp_path)
    cut = offsets[5] + 40
    with open_small(tmp_path / "replica") as replica:
        replica.append_raw(data[:cut], 0)
    with open_small(tmp_path / "replica", clock=ManualClock(T0 + 1)) as replica:
        assert replica.log.end == offsets[5]
        replica.append_raw(data[offsets[5] :], offsets[5])
        replica.catch_up()
        assert offsets_of(read_all(replica)) == offsets


@pytest.mark.parametrize(
    ("level", "stored_at", "due"),
    [
        ("3", T0, T0 + 10_000),
        ("9" * 5000, T0, T0 + 7_200_000),
        ("1", (1 << 63) - 1, (1 << 63) - 1),
        ("0" * 5000, T0, 7),
    ],
)
def test_a_delayed_record_with_any_numbers_has_a_time_that_fits_a_unit(
    store: MessageStore, level: str, stored_at: int, due: int
) -> None:
    assert store.dispatcher.delivery_time(encode({"DELAY": level}), stored_at, 7) == due


@pytest.mark.parametrize("topic", ["%RETRY%group", "SCHEDULE_TOPIC_XXXX", "rmq_sys_any", TOPIC])
@pytest.mark.parametrize("number", ["9" * 5000, "99999999999999999", "-1"])
def test_numbers_in_light_queues_that_a_client_made_up_are_ignored(
    open_store: Open, topic: str, number: str
) -> None:
    store = open_store(mapped_file_size_commit_log=1 << 16, **LIGHT)
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%light", "INNER_MULTI_QUEUE_OFFSET": number, "UNIQ_KEY": "K"}
    store.append(StoredMessage(topic, 0, b"one", encode(properties)))
    store.append(StoredMessage(topic, 0, b"two", encode({"UNIQ_KEY": "L"})))
    assert store.max_offset(topic, 0) == 2
    assert store.max_offset("%LMQ%light", 0) == (1 if topic == TOPIC else 0)


@pytest.mark.parametrize("names", ["%LMQ%light", "%LMQ%light,other", "%LMQ%light,%LMQ%a/b"])
@pytest.mark.parametrize("kind", ["one", "batch", "long batch"])
def test_messages_get_their_numbers_in_light_queues_from_the_broker_or_are_in_none(
    open_store: Open, names: str, kind: str
) -> None:
    store = open_store(mapped_file_size_commit_log=1 << 16, **LIGHT)
    numbers = ",".join(["99999999999"] * (names.count(",") + 1))
    properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": numbers, "UNIQ_KEY": "K"}
    count = {"one": 1, "batch": 2, "long batch": 100}[kind]
    if kind == "one":
        store.append(StoredMessage(TOPIC, 0, b"one", encode(properties)))
    else:
        store.append_batch(StoredMessage(TOPIC, 0, encode_batch([(0, b"item", encode(properties))] * count)))
    assert store.max_offset(TOPIC, 0) == count
    assert store.max_offset("%LMQ%light", 0) == (count if names == "%LMQ%light" else 0)
