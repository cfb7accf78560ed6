"""Opening a store once, in a process that did nothing else: what an operator waits for at a start."""

from __future__ import annotations

import dataclasses

from bench.machine import GIB
from bench.messages import TOPIC, open_store
from bench.rounds import Stopwatch


@dataclasses.dataclass(frozen=True, slots=True)
class Opening:
    """Cost and result of one opening."""

    wall: float
    cpu: float
    records: int
    """Records of the log that were walked."""
    first_reads: float
    """Seconds until every queue of the topic has given its newest message, once open."""
    log_files: int
    closing: float
    """Seconds to close again; 0 if the store was left as after a crash."""


def open_once(directory: str, *, crash: bool, log_file_size: int = GIB) -> Opening:
    """Open a store that was left by a crash or closed, and leave it in the same way."""
    with Stopwatch() as opening:
        store = open_store(directory, log_file_size=log_file_size)
    report = store.recovery
    assert report.clean is not crash, "the store is not in the state that is to be measured"
    with Stopwatch() as reading:
        for queue_id in store.queues.queue_ids(TOPIC):
            found = store.get(TOPIC, queue_id, store.max_offset(TOPIC, queue_id) - 1)
            assert found.count == 1, f"the newest message of queue {queue_id} cannot be read: {found.status}"
            del found
    log_files = len(store.log.files)
    with Stopwatch() as closing:
        if crash:
            store.abandon()
        else:
            store.close()
    closed = 0.0 if crash else closing.wall
    return Opening(opening.wall, opening.cpu, report.records, reading.wall, log_files, closed)
