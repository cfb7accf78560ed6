"""The progress of a replay, from the ends of its target queues."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError, OrbitMQError
from orbitmq.spark.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.spark.pipelines.progress import JobProgress

SECONDS = 1.0


@contextlib.contextmanager
def watching(nameserver: str, topics: Sequence[str], total: int, progress: JobProgress) -> Iterator[None]:
    """Report the number of new messages meanwhile. It is an estimate: other producers are counted too."""
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(nameserver, topics, total, progress, is_over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _watch(
    nameserver: str, topics: Sequence[str], total: int, progress: JobProgress, is_over: threading.Event
) -> None:
    # Whatever goes wrong here goes wrong for the senders too, and they know what to do.
    with contextlib.suppress(OrbitMQError):
        cluster = Cluster.of(nameserver, retry_seconds=0.0)
        try:
            before = _ends(cluster, topics)
            while not is_over.wait(SECONDS):
                progress.at(min(max(_ends(cluster, topics) - before, 0), total))
        finally:
            cluster.close()


def _ends(cluster: Cluster, topics: Sequence[str]) -> int:
    found = 0
    for topic in topics:
        with contextlib.suppress(NoRouteError):
            found += sum(bounds.max for bounds in cluster.bounds([topic])[topic].values())
    return found
