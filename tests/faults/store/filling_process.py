"""A process that fills the disk with messages, waits until somebody frees some space, and goes on.

Run as ``python filling_process.py <store directory> <plain|sync|pool>``. It says ``full <messages>`` when messages
of every size are refused, goes on when a line comes on standard input, says ``done <messages>`` when the disk is
full again, and closes the store when another line comes.
"""

from __future__ import annotations

import contextlib
import sys

from orbitmq.protocol.message.properties import encode
from orbitmq.store import (
    AppendRefusedError,
    DiskFaultError,
    FlushDiskType,
    LocalDisk,
    MessageStore,
    StoreConfig,
    StoredMessage,
)

LOG_FILE = 1 << 20
TOPIC = "orders"


def config(directory: str, kind: str) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=directory,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if kind == "sync" else FlushDiskType.ASYNC_FLUSH,
        transient_store_pool_enable=kind == "pool",
        mapped_file_size_commit_log=LOG_FILE,
        mapped_file_size_consume_queue=20 * 1000,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )


def fill(store: MessageStore, count: int) -> int:
    """Append until even small messages are refused; returns how many messages there are then."""
    # The large ones also make the log leave a file of which it owns only a part.
    for size in (30_000, 300_000, 3_000, 600_000, 300, 600_000, 0):
        with contextlib.suppress(AppendRefusedError):
            while True:
                body = b"%d:" % count
                store.append(StoredMessage(TOPIC, 0, body.ljust(size, b"."), encode({"UNIQ_KEY": f"u{count}"})))
                count += 1
        store.log.commit()
        store.flush()
        with contextlib.suppress(DiskFaultError):
            store.sync_queues()
    return count


def main() -> None:
    directory, kind = sys.argv[1:]
    store = MessageStore.open(config(directory, kind), disk=LocalDisk())
    count = fill(store, 0)
    print(f"full {count}", flush=True)  # noqa: T201
    sys.stdin.readline()
    count = fill(store, count)
    print(f"done {count}", flush=True)  # noqa: T201
    sys.stdin.readline()
    store.close()


if __name__ == "__main__":
    main()
