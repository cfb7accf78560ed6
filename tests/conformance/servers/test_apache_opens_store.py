"""Apache's broker starts on a store and Apache's client reads from it what was written.

Who wrote the store is a parameter. For Apache's own stores the tests prove the harness, for ours the disk format.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from conformance.servers import store_contents as our_store
from peers.apache import ApacheBroker, free_broker_port
from peers.reader import COMPRESSED, KEY, TAG, UNIQUE_KEY, ApacheReader, ServedMessage
from support.store import golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from peers.apache import ApacheNameServer

SAMPLE_STEP = 37
"""Where asking for every message one by one would take long, every one of so many is asked for."""

QUERY_LIMIT = 64
"""An index query finds at most so many messages, the newest."""


@dataclasses.dataclass(frozen=True, slots=True)
class Writer:
    """Someone who writes a store into a folder and says which messages are to be served from it.

    ``growing`` are the topics to which the broker itself may append as soon as it runs, because the store holds
    messages that are due or pending: these may hold more than was written, but only after it.
    """

    conf: Mapping[str, str]
    write: Callable[[Path, Mapping[str, str]], list[ServedMessage]]
    growing: frozenset[str] = frozenset()


def unpack_golden_store(directory: Path, conf: Mapping[str, str]) -> list[ServedMessage]:
    assert golden.unpack("basic", directory.parent, with_timer=True) == str(directory)
    return [_served(row) for row in golden.expected_records("basic") if "topic" in row]


WRITERS = {
    "apache": Writer(
        conf=golden.config("basic"),
        write=unpack_golden_store,
        growing=frozenset(
            {
                "TopicDelay",
                "TopicTimer",
                "RMQ_SYS_TRANS_HALF_TOPIC",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                "rmq_sys_wheel_timer",
            }
        ),
    ),
    "orbitmq": Writer(conf=our_store.CONF, write=our_store.write_closed_store),
    "orbitmq-killed": Writer(conf=our_store.CONF, write=our_store.write_killed_store),
    "orbitmq-mended": Writer(conf=our_store.CONF, write=our_store.write_mended_store),
}


@dataclasses.dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store that Apache's broker has opened: what was written, and Apache's client to read it."""

    broker: ApacheBroker
    reader: ApacheReader
    written: list[ServedMessage]
    growing: frozenset[str]

    def by_queue(self) -> dict[str, dict[int, list[ServedMessage]]]:
        """What was written, by topic and queue id, in the order of the queue."""
        topics: dict[str, dict[int, list[ServedMessage]]] = {}
        for message in sorted(self.written, key=lambda message: message.queue_offset):
            queues = topics.setdefault(message.topic, {})
            queues.setdefault(message.queue_id, []).append(message)
        return topics

    def sample(self) -> list[ServedMessage]:
        """Some of what was written: of every queue the first, the last and some between."""
        queues = [queue for topic in self.by_queue().values() for queue in topic.values()]
        return [message for queue in queues for message in (*queue[::SAMPLE_STEP], queue[-1])]


@pytest.fixture(scope="module", params=WRITERS)
def opened(
    request: pytest.FixtureRequest,
    apache_nameserver: ApacheNameServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OpenedStore]:
    writer = WRITERS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    store = folder / "store"
    # Stored in every record; free here and now, while the port of a store from elsewhere need not be.
    conf = {**writer.conf, "listenPort": str(free_broker_port())}
    written = writer.write(store, conf)
    nameserver = apache_nameserver.address
    with (
        ApacheBroker(store, conf, home=folder / "broker", nameserver=nameserver) as broker,
        ApacheReader(home=folder / "reader", nameserver=nameserver) as reader,
    ):
        yield OpenedStore(broker, reader, written, writer.growing)


def test_every_message_is_served_as_it_was_written(opened: OpenedStore) -> None:
    assert opened.written
    for topic, queues in opened.by_queue().items():
        served: dict[int, list[ServedMessage]] = collections.defaultdict(list)
        for message in opened.reader.messages(topic):
            served[message.queue_id].append(message)
        if topic not in opened.growing:
            assert served.keys() == queues.keys(), topic
        for queue_id, written in queues.items():
            found = served[queue_id]
            if topic in opened.growing:
                found = found[: len(written)]
            assert len(found) == len(written), f"{topic}, queue {queue_id}"
            # Message by message: a difference between two lists of thousands is no help to anybody.
            for message, expected in zip(found, written, strict=True):
                assert message == expected


def test_every_queue_begins_and_ends_where_it_was_written(opened: OpenedStore) -> None:
    for topic, queues in opened.by_queue().items():
        for served in opened.reader.queues(topic):
            written = queues.get(served.queue_id, [])
            end = written[-1].queue_offset + 1 if written else 0
            assert served.min_offset == (written[0].queue_offset if written else 0)
            if topic in opened.growing:
                assert served.max_offset >= end
            else:
                assert served.max_offset == end, f"{topic}, queue {served.queue_id}"


def test_a_message_is_found_by_its_offset_id(opened: OpenedStore) -> None:
    for message in opened.sample():
        found = opened.reader.view(message.topic, message.offset_id, broker=opened.broker.address)
        assert found == message


def test_messages_are_found_by_their_keys(opened: OpenedStore) -> None:
    by_key: dict[tuple[str, str], list[ServedMessage]] = collections.defaultdict(list)
    for message in opened.written:
        for key in set(message.properties.get("KEYS", "").split()):
            by_key[message.topic, key].append(message)
    assert by_key
    for (topic, key), written in by_key.items():
        _check_found(opened, topic, opened.reader.query(topic, key, kind=KEY), written)


def test_messages_are_found_by_their_tag(opened: OpenedStore) -> None:
    by_tag: dict[tuple[str, str], list[ServedMessage]] = collections.defaultdict(list)
    for message in opened.written:
        if tag := message.properties.get("TAGS"):
            by_tag[message.topic, tag].append(message)
    assert by_tag
    for (topic, tag), written in by_tag.items():
        _check_found(opened, topic, opened.reader.query(topic, tag, kind=TAG), written)


def test_a_message_is_found_by_its_unique_key(opened: OpenedStore) -> None:
    sample = [message for message in opened.sample() if "UNIQ_KEY" in message.properties]
    assert sample
    for message in sample:
        found = opened.reader.query(message.topic, message.message_id, kind=UNIQUE_KEY)
        assert message in found


def test_a_time_leads_to_the_first_message_stored_then(opened: OpenedStore) -> None:
    queues = opened.by_queue()
    for message in opened.sample():
        queue = queues[message.topic][message.queue_id]
        first = next(one for one in queue if one.store_timestamp >= message.store_timestamp)
        found = opened.reader.search_offset(message.topic, message.queue_id, message.store_timestamp)
        assert found == first.queue_offset


def _check_found(opened: OpenedStore, topic: str, found: list[ServedMessage], written: list[ServedMessage]) -> None:
    newest = sorted(written, key=lambda message: message.physical_offset)[-QUERY_LIMIT:]
    offsets = {message.physical_offset for message in found}
    if topic in opened.growing:
        assert offsets >= {message.physical_offset for message in newest}
        return
    assert offsets == {message.physical_offset for message in newest}
    for message in found:
        assert message in newest


def _served(row: dict[str, Any]) -> ServedMessage:
    return ServedMessage(
        topic=row["topic"],
        queue_id=row["queueId"],
        queue_offset=row["queueOffset"],
        physical_offset=row["physicalOffset"],
        store_size=row["storeSize"],
        message_id=row["properties"].get("UNIQ_KEY", row["msgId"]),
        offset_id=row["msgId"],
        flag=row["flag"],
        sys_flag=row["sysFlag"] & ~COMPRESSED,
        born_timestamp=row["bornTimestamp"],
        born_host=row["bornHost"],
        store_timestamp=row["storeTimestamp"],
        store_host=row["storeHost"],
        reconsume_times=row["reconsumeTimes"],
        prepared_transaction_offset=row["preparedTransactionOffset"],
        body_crc=row["bodyCRC"],
        body_sha256=row.get("bodyDecompressedSha256", row["bodySha256"]),
        properties=row["properties"],
    )
