"""Small stores for tests: opened with small files, filled with messages, looked at from outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.message.record import decode_record, iter_records
from orbitmq.store import FlushDiskType, MessageStore, StoreConfig, StoredMessage, from_settings
from orbitmq.testing import ManualClock
from support.store import golden

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.message.record import Record
    from orbitmq.store import GetResult

T0 = 1_700_000_000_000
"""Where the clock of a test stands unless it says otherwise."""

LOG_FILE = 4096
QUEUE_FILE = 200
"""Small enough that a test of a few messages crosses the ends of files: a queue file has ten units."""

TOPIC = "TopicA"
SMALLEST_RECORD = 91 + len(TOPIC)
"""What a record of this topic takes without body and properties."""


SYNC: dict[str, Any] = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
"""Settings of a store whose messages are seen and acknowledged after a flush."""


def small_config(root: str | Path, **settings: Any) -> StoreConfig:
    """Settings of a store with small files."""
    values: dict[str, Any] = {
        "store_path_root_dir": str(root),
        "mapped_file_size_commit_log": LOG_FILE,
        "mapped_file_size_consume_queue": QUEUE_FILE,
        "mapper_file_size_batch_consume_queue": 460,
        "max_hash_slot_num": 50,
        "max_index_num": 100,
    }
    return StoreConfig(**(values | settings))


def open_small(
    root: str | Path, *, clock: ManualClock | None = None, disk: Disk | None = None, **settings: Any
) -> MessageStore:
    """Open a store with small files. ``batch_topics`` and ``memory_size`` are the store's, the rest settings."""
    opening = {name: settings.pop(name) for name in ("batch_topics", "memory_size") if name in settings}
    return MessageStore.open(small_config(root, **settings), clock=clock or ManualClock(T0), disk=disk, **opening)


def open_golden(name: str, directory: str | Path, **settings: Any) -> MessageStore:
    """Unpack a store written by Apache RocketMQ and open it."""
    root = golden.unpack(name, directory)
    config, _ = from_settings(golden.config(name), store_path_root_dir=root, **settings)
    return MessageStore.open(config, clock=ManualClock(2_000_000_000_000))


def send(
    store: MessageStore, count: int = 1, *, topic: str = TOPIC, queue_id: int = 0, size: int = 0, **properties: str
) -> list[int]:
    """Append messages whose bodies tell them apart; returns the offsets of their records."""
    offsets = []
    for _ in range(count):
        body = b"%d:" % store.log.end
        appended = store.append(StoredMessage(topic, queue_id, body.ljust(size, b"."), encode(properties)))
        offsets.append(appended.offset)
    return offsets


def fill_file_but(store: MessageStore, rest: int) -> int:
    """Append one message to the smallest topic that leaves ``rest`` bytes in the log file; returns its offset."""
    size = store.log.file_size - store.log.end % store.log.file_size - rest
    return store.append(StoredMessage(TOPIC, 0, b"f" * (size - SMALLEST_RECORD))).offset


def served(result: GetResult) -> list[Record]:
    """The records of an answer."""
    return [record for piece in result.slices for record in iter_records(piece)]


def read_all(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> list[Record]:
    """Every record of a queue, read as a consumer does."""
    records: list[Record] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        result = store.get(topic, queue_id, offset)
        assert result.next_begin_offset > offset
        records += served(result)
        offset = result.next_begin_offset
    return records


def all_queues(store: MessageStore) -> dict[tuple[str, int], list[Record]]:
    """Every record of every queue that has one."""
    found = {
        (name, queue_id): read_all(store, name, queue_id)
        for name in store.queues.names()
        for queue_id in store.queues.queue_ids(name)
    }
    return {key: records for key, records in found.items() if records}


def offsets_of(records: list[Record]) -> list[int]:
    """Where records lie in the log."""
    return [record.physical_offset for record in records]


def record_at(store: MessageStore, offset: int) -> Record:
    """The record at a physical offset, which must be there."""
    found = store.record(offset)
    assert found is not None
    return decode_record(found)


def tree(root: str | Path, *folders: str) -> dict[str, bytes]:
    """Contents of all files below some folders of a store, by their path below its root."""
    contents = {}
    for folder in folders:
        for directory, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    contents[os.path.relpath(path, root)] = file.read()
    return contents


def edit(path: str | Path, position: int, data: bytes) -> None:
    """Replace bytes in the middle of a file."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def edit_log(root: str | Path, offset: int, data: bytes, *, file_size: int = LOG_FILE) -> None:
    """Replace bytes of the commit log of a closed store."""
    base = offset - offset % file_size
    edit(os.path.join(root, "commitlog", f"{base:020d}"), offset - base, data)
