"""Offset commits of an archive: its ends, committed to an ordinary consumer group.

With ``archiveGroup``, brokers do not delete messages beyond these offsets. So a commit that a broker did not
confirm is retried, and a run that ends by Ctrl-C or an error commits the rest before it exits: the next run would
do so as well, but that may be days away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.config import ClientConfig, name_server_list
from orbitmq.client.errors import BrokerError, NoRouteError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.progress import JobProgress
    from orbitmq.spark.topic_source.options import SourceOptions

LAST_SECONDS = 3.0
"""The time for the last commits of an interrupted run: a user is waiting for it to exit."""


class Commits:
    """The offsets that one run has committed."""

    def __init__(self, source: SourceOptions, group: str, progress: JobProgress) -> None:
        self._source = source
        self._group = group
        self._progress = progress
        self._known: dict[MessageQueue, int] = {}
        """The offsets that brokers have confirmed."""

    def commit_new(self, ends: Mapping[MessageQueue, int]) -> None:
        """Commit those of the ends that brokers do not know yet. Raises OrbitMQError."""
        self._commit(self._cluster, self._news(ends))

    def commit_all(self, ends: Mapping[MessageQueue, int]) -> None:
        """Commit all: a broker that crashed may have lost earlier commits. Raises OrbitMQError."""
        self._commit(self._cluster, ends)

    def commit_last(self, ends: Mapping[MessageQueue, int]) -> None:
        """``commit_new`` at the end of an interrupted run, within seconds. Raises OrbitMQError."""
        news = self._news(ends)
        if not news:
            return
        # By connections of its own: what was interrupted may have been in the middle of using the others.
        config = ClientConfig(name_servers=name_server_list(self._source.nameserver))
        cluster = Cluster(config, min(LAST_SECONDS, self._source.retry_seconds))
        try:
            self._commit(cluster, news)
        finally:
            cluster.close()

    @property
    def _cluster(self) -> Cluster:
        return Cluster.of(self._source.nameserver, retry_seconds=self._source.retry_seconds)

    def _news(self, ends: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return {queue: end for queue, end in ends.items() if self._known.get(queue) != end}

    def _commit(self, cluster: Cluster, ends: Mapping[MessageQueue, int]) -> None:
        if not ends:
            return
        try:
            cluster.commit(self._group, ends)
        except (NoRouteError, BrokerError) as error:
            if not _is_gone(error):
                raise
            topics = {queue.topic for queue in ends}
            if len(topics) == 1:
                # Deleted a moment ago. If it exists again at the next look at the queues, the commit is retried.
                self._progress.say(f"what is archived could not be committed: {error}")
                return
            # One deleted topic must not prevent the commits of the others.
            for topic in sorted(topics):
                self._commit(cluster, {queue: end for queue, end in ends.items() if queue.topic == topic})
            return
        self._known.update(ends)


def _is_gone(error: NoRouteError | BrokerError) -> bool:
    """True if a topic does not exist. While it is deleted it may have a route to a broker without it."""
    return isinstance(error, NoRouteError) or error.code == ResponseCode.TOPIC_NOT_EXIST
