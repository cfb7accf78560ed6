"""A process that appends to a store until it is killed, and says which messages were acknowledged.

Run as ``python appender_process.py``; every line on standard input is ``<store directory> <life>``. For each of
them a process of its own is forked, so that the cost of starting an interpreter is paid once. What a life
acknowledges goes to standard output, one line each, written in one piece after the message is on disk. A line with
only the process id begins a life, and one with ``dead`` ends it.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from orbitmq.protocol.message.properties import encode
from orbitmq.store import FlushDiskType, LocalDisk, MessageStore, StoreConfig, StoredMessage
from orbitmq.store.background.service import StoreService

APPENDERS = 24
TOPICS = ("orders", "payments")
QUEUES = 4


def config(directory: str) -> StoreConfig:
    """Small files, so that a short life crosses many of their ends, and everything synced often."""
    return StoreConfig(
        store_path_root_dir=directory,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        mapped_file_size_commit_log=32 * 1024,
        mapped_file_size_consume_queue=20 * 50,
        max_hash_slot_num=50,
        max_index_num=400,
        flush_interval_commit_log=1,
        flush_interval_consume_queue=1,
        flush_consume_queue_thorough_interval=0,
    )


async def live(directory: str, life: int) -> None:
    """Append with many at once until somebody kills the process."""
    store = MessageStore.open(config(directory), disk=LocalDisk())
    service = StoreService(store)
    await service.start()
    rng = random.Random(life)
    number = 0

    async def append() -> None:
        nonlocal number
        while True:
            number += 1
            key = f"L{life}N{number}"
            topic, queue_id = rng.choice(TOPICS), rng.randrange(QUEUES)
            body = f"{key}:".encode() + rng.randbytes(rng.choice((0, 50, 500, 3000)))
            appended = store.append(StoredMessage(topic, queue_id, body, encode({"UNIQ_KEY": key, "TAGS": "t"})))
            await service.flushed(appended.offset + appended.size)
            os.write(1, f"{topic} {queue_id} {appended.queue_offset} {key}\n".encode())

    await asyncio.gather(*(append() for _ in range(APPENDERS)))


def main() -> None:
    for line in sys.stdin:
        directory, life = line.rsplit(maxsplit=1)
        pid = os.fork()
        if pid == 0:
            os.write(1, f"{os.getpid()}\n".encode())
            asyncio.run(live(directory, int(life)))
            os._exit(1)
        os.waitpid(pid, 0)
        os.write(1, b"dead\n")


if __name__ == "__main__":
    main()
