"""Offset fast path: commits and queries of consumer offsets that are in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.broker.fast_path.adapter import NOT_NOW, FastPathAdapter
from orbitmq.broker.offsets.processor import JSON_PARTS
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command.header import LANGUAGES_BY_NAME
from orbitmq.protocol.names import GROUPS_OF_SERVICES
from orbitmq.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.broker.runtime import Metadata
    from orbitmq.native._native import OffsetServer
    from orbitmq.remoting import Connection


class OffsetFastPath(FastPathAdapter["OffsetServer"]):
    """Serves UPDATE_CONSUMER_OFFSET and QUERY_CONSUMER_OFFSET requests.

    A route holds the offsets of a group in a topic, a part of the table. There are no more routes than such parts,
    and a part that is replaced closes all of them.
    """

    def __init__(self, epoch: RouteEpoch, metadata: Metadata) -> None:
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        super().__init__(epoch)

    def _create(self) -> OffsetServer:
        self._revision = self._offsets.revision
        return native.load().offset_server(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=JSON_PARTS,
            language=LanguageCode.JAVA,
            version=CURRENT_VERSION,
        )

    def _serve(self, connection: Connection, data: bytes) -> int:
        offsets = self._offsets
        if offsets.pending_resets or offsets.unsent is not None:
            return NOT_NOW
        if offsets.revision != self._revision:
            self._revision = offsets.revision
            self._native.clear_routes()
        served = self._native.serve(data)
        if served.request_count:
            self.served += served.request_count
            offsets.on_commits(served.commit_count, is_changed=served.is_changed)
            if served.answers:
                connection.send(served.answers, served.request_count)
        return served.size

    def _open_route(self, _connection: Connection, key: bytes, group: str, topic: str) -> bool:
        if group in GROUPS_OF_SERVICES or group not in self._groups.configs or topic not in self._topics.configs:
            return False
        offsets = self._offsets.table_of(group, topic)
        if offsets is None:
            return False
        self._native.add_route(key, offsets)
        return True
