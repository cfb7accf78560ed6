"""A store written here with everything a store can hold, and what a consumer is to get from it."""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.compression import Compression, compress, compressed_flag
from orbitmq.protocol.message.crc import body_crc
from orbitmq.protocol.message.flags import COMPRESSED
from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.store import LocalDisk, MessageStore, StoredMessage, SystemClock, from_settings
from orbitmq.store.config_tables import TOPICS
from orbitmq.testing import ManualClock
from peers.reader import ServedMessage
from support.store.stores import edit_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from orbitmq.store import Appended

CONF = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "brokerName": "broker-orbit",
    "brokerIP1": "127.0.0.1",
}
"""Small files, so that all kinds of them are filled and followed by others."""

PLAIN, TAGGED, KEYED, PACKED, BATCHED, BULK = (
    "TopicPlain",
    "TopicTagged",
    "TopicKeyed",
    "TopicPacked",
    "TopicBatched",
    "TopicBulk",
)
RETRY = "%RETRY%" + "g" * 100 + "_" + "t" * 60
"""A topic too long for a record of the first version."""

QUEUE_NUMBERS = {PLAIN: 3, TAGGED: 2, KEYED: 2, PACKED: 1, BATCHED: 2, BULK: 4, RETRY: 1}
BORN_HOST = "192.168.7.9:43210"
LONGEST_DELAY_LEVEL = "18"
"""Two hours: the message is still parked when the tests are over."""


class Writing:
    """A store being written, and the messages in it as a consumer is to get them."""

    def __init__(self, directory: Path, conf: Mapping[str, str]) -> None:
        config, _ = from_settings(conf, store_path_root_dir=str(directory))
        # In the past, because the broker that opens the store has not stored anything from its future.
        self.clock = ManualClock(SystemClock().now_ms() - 120_000)
        self.store = MessageStore.open(config, clock=self.clock)
        self.messages: list[ServedMessage] = []
        self._store_host = f"{config.broker_ip1}:{config.listen_port}"

    def send(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: dict[str, str],
        *,
        packed: Compression | None = None,
        flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> None:
        """Append one message; with ``packed`` its body is stored compressed."""
        self.clock.advance(37)
        properties = {"UNIQ_KEY": f"{len(self.messages):032X}", **properties}
        sys_flag = 0 if packed is None else compressed_flag(0, packed)
        stored = body if packed is None else compress(body, packed)
        appended = self.store.append(
            StoredMessage(
                topic,
                queue_id,
                stored,
                encode(properties),
                flag=flag,
                sys_flag=sys_flag,
                born_timestamp=self.clock.now_ms() - 5,
                born_host=host_bytes(BORN_HOST),
                reconsume_times=reconsume_times,
                prepared_transaction_offset=prepared_transaction_offset,
            )
        )
        self._note(
            appended, topic, queue_id, body, stored, properties, sys_flag, flag, reconsume_times,
            prepared_transaction_offset,
        )  # fmt: skip

    def send_batch(self, topic: str, queue_id: int, bodies: list[bytes]) -> None:
        """Append messages as a client's batch."""
        self.clock.advance(37)
        start = len(self.messages)
        sent = [
            (number, body, {"UNIQ_KEY": f"{start + number:032X}", "KEYS": f"batch{start + number}"})
            for number, body in enumerate(bodies)
        ]
        results = self.store.append_batch(
            StoredMessage(
                topic,
                queue_id,
                encode_batch((flag, body, encode(properties)) for flag, body, properties in sent),
                born_timestamp=self.clock.now_ms() - 5,
                born_host=host_bytes(BORN_HOST),
            )
        )
        for appended, (flag, body, properties) in zip(results, sent, strict=True):
            self._note(appended, topic, queue_id, body, body, properties, 0, flag, 0, 0)

    def _note(
        self,
        appended: Appended,
        topic: str,
        queue_id: int,
        body: bytes,
        stored: bytes,
        properties: dict[str, str],
        sys_flag: int,
        flag: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> None:
        self.messages.append(
            ServedMessage(
                topic=topic,
                queue_id=queue_id,
                queue_offset=appended.queue_offset,
                physical_offset=appended.offset,
                store_size=appended.size,
                message_id=properties["UNIQ_KEY"],
                offset_id=self.store.message_id(appended.offset),
                flag=flag,
                sys_flag=sys_flag & ~COMPRESSED,
                born_timestamp=appended.store_timestamp - 5,
                born_host=BORN_HOST,
                store_timestamp=appended.store_timestamp,
                store_host=self._store_host,
                reconsume_times=reconsume_times,
                prepared_transaction_offset=prepared_transaction_offset,
                body_crc=body_crc(stored),
                body_sha256=hashlib.sha256(body).hexdigest(),
                properties=properties,
            )
        )


def write_everything(writing: Writing, *, synced_halfway: bool = False) -> None:
    """Messages of all kinds, over several files of the log, of queues and of the index."""
    for number in range(10):
        writing.send(PLAIN, number % 3, b"p" * (number + 1), {}, flag=(number - 3) * 1_000_003)
    for number, tag in enumerate(("TagA", "TagB", "Umläut", "标签", "😀", "Aa", "BB")):
        writing.send(TAGGED, number % 2, f"tagged {tag}".encode(), {"TAGS": tag, "größe": "zwölf"})
    for number, keys in enumerate(("one", "two three", "schlüssel 键", "AaAa", "BBBB", "one two")):
        writing.send(KEYED, number % 2, f"keyed {keys}".encode(), {"KEYS": keys, "TAGS": "TagK"})
    for number, kind in enumerate(Compression):
        body = b"compress me " * 400 + bytes([number])
        writing.send(PACKED, 0, body, {"KEYS": kind.name}, packed=kind, reconsume_times=number)
    writing.send(PACKED, 0, bytes(range(256)) * 20, {"KEYS": "plain"}, prepared_transaction_offset=4711)
    for size in (1, 3, 12):
        writing.send_batch(BATCHED, size % 2, [b"item %d" % number * 20 for number in range(size)])
    writing.send(RETRY, 0, b"retried", {"RETRY_TOPIC": PLAIN, "KEYS": "retried"}, reconsume_times=3)
    parked = {"DELAY": LONGEST_DELAY_LEVEL, "REAL_TOPIC": PLAIN, "REAL_QID": "1", "KEYS": "parked", "TAGS": "TagP"}
    writing.send(SCHEDULE_TOPIC, int(LONGEST_DELAY_LEVEL) - 1, b"later", parked)
    for number in range(700):
        if synced_halfway and number == 350:
            writing.store.flush()
            writing.store.sync_queues()
            writing.clock.advance(10_000)
        properties = {"KEYS": f"bulk{number}", "TAGS": f"Tag{number % 5}"}
        writing.send(BULK, number % 4, b"%d;" % number * (1 + number % 60), properties)


def write_topics(directory: Path) -> None:
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=number, write_queue_nums=number)
        for name, number in QUEUE_NUMBERS.items()
    }
    disk = LocalDisk()
    TOPICS.persist(disk, str(directory / "config"), TopicConfigSerializeWrapper(topic_config_table=table))
    disk.close()


@contextlib.contextmanager
def _writing(directory: Path, conf: Mapping[str, str]) -> Iterator[Writing]:
    writing = Writing(directory, conf)
    try:
        yield writing
    finally:
        if writing.store.is_open:
            writing.store.abandon()
    write_topics(directory)


def write_closed_store(directory: Path, conf: Mapping[str, str]) -> list[ServedMessage]:
    """A store that was closed properly."""
    with _writing(directory, conf) as writing:
        write_everything(writing)
        writing.store.close()
        return writing.messages


def write_killed_store(directory: Path, conf: Mapping[str, str]) -> list[ServedMessage]:
    """A store whose process was killed: the log is on disk, queues and index lag behind it."""
    with _writing(directory, conf) as writing:
        write_everything(writing, synced_halfway=True)
        writing.store.flush()
    assert (directory / "abort").exists()
    return writing.messages


def write_mended_store(directory: Path, conf: Mapping[str, str]) -> list[ServedMessage]:
    """A store that lost a record in the middle of its log to damage and was opened and closed here since."""
    written = write_killed_store(directory, conf)
    damaged = [message for message in written if message.topic == BULK][500]
    file_size = int(conf["mappedFileSizeCommitLog"])
    assert damaged.physical_offset > file_size
    edit_log(directory, damaged.physical_offset, b"\xff" * 40, file_size=file_size)
    config, _ = from_settings(conf, store_path_root_dir=str(directory))
    with MessageStore.open(config) as store:
        assert [damage.offset for damage in store.recovery.damages] == [damaged.physical_offset]
    return [message for message in written if message is not damaged]
