"""The topics that queries can name: live, archived, or both."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from orbitmq.client.config import name_server_list
from orbitmq.client.errors import BrokerError, InvalidMessageError, NoRouteError
from orbitmq.client.validation import check_topic
from orbitmq.protocol.codes import ResponseCode
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.spark.pipelines.sql.archive_live_boundary import ArchiveMoment, Seam, seam_of

if TYPE_CHECKING:
    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.protocol.bodies import MessageQueue

RETRY_SECONDS = 10.0
"""How long a broker that is away is waited for before a query fails."""

MAX_NAMES = 3
LOOKS = 3


class UnknownTopicError(PipelineError):
    """No broker and no archive has a topic."""


class TopicPlaces:
    """The sources of topics: a cluster, an archive, or both."""

    def __init__(
        self, nameserver: str | None = None, archive: str | None = None, *, archive_only: bool = False
    ) -> None:
        """Raises OptionError, and ArchiveError if there is no archive there."""
        if archive_only and archive is None:
            raise OptionError("only the archive is to be read, and none is named")
        self.archive = archive
        self.nameserver: str | None = None
        if archive is not None:
            ArchiveMoment.existing(archive)
        if not archive_only:
            try:
                self.nameserver = ";".join(name_server_list(nameserver))
            except InvalidMessageError:
                raise OptionError(
                    'nameserver is missing: give "host:port", several separated by ";", or set NAMESRV_ADDR'
                ) from None

    def __str__(self) -> str:
        live = f"at {self.nameserver}" if self.nameserver else ""
        archived = f"in the archive {self.archive}" if self.archive else ""
        return " nor ".join(filter(None, (live, archived)))

    @property
    def cluster(self) -> Cluster | None:
        """The one of this thread."""
        if self.nameserver is None:
            return None
        return Cluster.of(self.nameserver, retry_seconds=RETRY_SECONDS)

    def names(self) -> list[str]:
        """All topics but RocketMQ's own, retry and dead letter topics, sorted. Raises OrbitMQError."""
        found = set(self.cluster.topics()) if self.cluster is not None else set()
        if self.archive is not None:
            found |= set(ArchiveMoment(self.archive).topics())
        return sorted(found)

    def topic_of(self, name: str) -> str:
        """The topic that a table's name means: one of just this name, or but for capitals. Raises OrbitMQError."""
        names = self.names()
        same = {one for one in names if one.lower() == name.lower()}
        if name not in same and self._is_there(name):
            same.add(name)
        if len(same) > 1:
            raise PipelineError(
                f"the topics {' and '.join(map(repr, sorted(same)))} are one name in SQL: read them with topic_view"
            )
        if same:
            return same.pop()
        near = difflib.get_close_matches(name, names, MAX_NAMES)
        hint = f"did you mean {' or '.join(near)}?" if near else "'show topics' lists what there is"
        raise UnknownTopicError(f"there is no topic {name!r} {self}: {hint}")

    def _is_there(self, topic: str) -> bool:
        """True for an existing topic that is not listed, such as a retry topic."""
        return bool(self._bounds(topic))

    def _bounds(self, topic: str) -> dict[MessageQueue, Bounds]:
        """The bounds of a topic; empty if it does not exist."""
        cluster = self.cluster
        try:
            check_topic(topic)
            return {} if cluster is None else cluster.bounds([topic])[topic]
        except (NoRouteError, InvalidMessageError):
            return {}
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return {}
            raise

    def look(self, topic: str) -> tuple[Seam, ArchiveMoment | None]:
        """The current ranges of a topic. Raises UnknownTopicError, and OrbitMQError."""
        archive = None if self.archive is None else ArchiveMoment(self.archive)
        for last in (False,) * (LOOKS - 1) + (True,):
            # The archive first: what brokers delete after that, they delete because it was archived since.
            bounds = self._bounds(topic)
            seam = seam_of(topic, [] if archive is None else archive.segments(), bounds)
            if archive is None or not seam.gaps or last:
                break
            newer = ArchiveMoment(archive.path)
            if len(newer.segments()) == len(archive.segments()):
                break
            archive = newer
        if not bounds and not seam.archived:
            raise UnknownTopicError(f"there is no topic {topic!r} {self}")
        return seam, archive
