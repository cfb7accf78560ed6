"""Sample messages of a pipeline project: files ``samples/<topic>.jsonl`` with one body a line.

With them an example runs on any cluster: they are sent to a topic that does not exist yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import NoRouteError
from orbitmq.client.message import Message
from orbitmq.client.sync.producer import Producer
from orbitmq.spark.cluster import Cluster

if TYPE_CHECKING:
    import pathlib

    from orbitmq.spark.pipelines.progress import JobProgress

FOLDER = "samples"
SUFFIX = ".jsonl"
GROUP = "orbitmq-samples"


def send_samples(folder: pathlib.Path, nameserver: str | None, progress: JobProgress) -> None:
    """Send the samples of those topics that the cluster does not have. Raises OrbitMQError."""
    files = sorted((folder / FOLDER).glob(f"*{SUFFIX}"))
    if not files:
        return
    cluster = Cluster.of(nameserver)
    missing = [path for path in files if not _exists(cluster, path.stem)]
    if not missing:
        return
    with Producer(nameserver, group=GROUP) as producer:
        for path in missing:
            bodies = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            for body in bodies:
                producer.send(Message(path.stem, body))
            progress.say(f"the topic {path.stem} did not exist: {len(bodies)} messages of {path} were sent to it")


def _exists(cluster: Cluster, topic: str) -> bool:
    try:
        return bool(cluster.queues(topic))
    except NoRouteError:
        return False
