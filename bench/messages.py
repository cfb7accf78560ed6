"""Messages as a Java producer sends them and a broker stores them, and stores filled with them."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from orbitmq.store import FlushDiskType, MessageStore, StoreConfig, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store import Disk

TOPIC = "BenchTopic"
QUEUES = 8
BORN_HOST = bytes((192, 0, 2, 7, 0, 0, 0xC3, 0x50))
TAGS = ("TagA", "TagB", "TagC", "TagD")

_DISTINCT = 8192


def properties(number: int) -> bytes:
    """The properties of a message after the broker's own were added; the unique key counts up."""
    items = (
        f"UNIQ_KEY\x01C0000207302A251A69D7{number:012X}",
        "WAIT\x01true",
        f"TAGS\x01{TAGS[number % len(TAGS)]}",
        "MSG_REGION\x01DefaultRegion",
        "TRACE_ON\x01true",
        "CLUSTER\x01DefaultCluster",
    )
    return "".join(f"{item}\x02" for item in items).encode()


def many_properties() -> list[bytes]:
    """Distinct properties to go through again and again; made before the clock starts."""
    return [properties(number) for number in range(_DISTINCT)]


def body(size: int) -> bytes:
    """A body that does not compress; its bytes are the same in every run."""
    value = 1
    words = []
    for _ in range(-(-size // 4)):
        value = value * 1_103_515_245 + 12_345 & 0x7FFFFFFF
        words.append(value.to_bytes(4, "big"))
    return b"".join(words)[:size]


def store_root(directory: str) -> str:
    """Where ``open_store`` puts a store, so that a scenario's directory may hold other things too."""
    return os.path.join(directory, "store")


def open_store(
    directory: str,
    *,
    disk: Disk | None = None,
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
    log_file_size: int = 1 << 30,
) -> MessageStore:
    """A store, by default with a broker's own settings."""
    config = StoreConfig(
        store_path_root_dir=store_root(directory), flush_disk_type=flush, mapped_file_size_commit_log=log_file_size
    )
    return MessageStore.open(config, disk=disk)


class Producer:
    """Appends to a store, going round its queues."""

    def __init__(self, store: MessageStore, queues: int = QUEUES) -> None:
        self._append = store.append
        self._clock = store.clock
        self._properties: Iterator[bytes] = itertools.cycle(many_properties())
        self._queue_ids: Iterator[int] = itertools.cycle(range(queues))

    def append(self, content: bytes, count: int, topic: str = TOPIC) -> int:
        """Append so many messages; returns their number."""
        append, born = self._append, self._clock.now_ms()
        chosen = itertools.islice(zip(self._queue_ids, self._properties, strict=False), count)
        for queue_id, held in chosen:
            append(StoredMessage(topic, queue_id, content, held, born_timestamp=born, born_host=BORN_HOST))
        return count


def fill(store: MessageStore, content: bytes, size: int) -> int:
    """Append messages until the log has grown by ``size`` bytes; returns their number."""
    producer = Producer(store)
    end = store.log.end + size
    count = 0
    while store.log.end < end:
        count += producer.append(content, 256)
    return count
