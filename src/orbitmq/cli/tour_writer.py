"""The process that ``orbitmq tour`` kills: it appends under SYNC_FLUSH and says what it has acknowledged."""

import sys

from orbitmq.protocol.properties import encode
from orbitmq.store import FlushDiskType, MessageStore, StoreConfig

TOPIC = "crash"
GROUP = 8
"""Messages that share a flush, as a broker lets waiting producers share one."""

FILE_SIZE = 16 * 1024 * 1024


def config_for(root: str, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH) -> StoreConfig:
    """The settings of the tour's store: small files, so that it has several."""
    return StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=FILE_SIZE,
        mapped_file_size_consume_queue=200_000,
        max_hash_slot_num=50_000,
        max_index_num=200_000,
        flush_disk_type=flush,
    )


def write_until_killed(root: str) -> None:
    """Append, flush, acknowledge, without end."""
    store = MessageStore.open(config_for(root, FlushDiskType.SYNC_FLUSH))
    count = 0
    while True:
        for _ in range(GROUP):
            store.append(TOPIC, 0, b"payment %d" % count, encode({"KEYS": f"pay-{count}"}))
            count += 1
        store.flush()
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()
