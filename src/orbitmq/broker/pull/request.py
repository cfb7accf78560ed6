"""PullRequest: a parsed PULL_MESSAGE or LITE_PULL_MESSAGE, as it is answered, held and answered later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbitmq.protocol.command.fast_decode import pull_fields
from orbitmq.protocol.command.header import EXT_FIELDS
from orbitmq.protocol.command.request_fields import IN_BULK
from orbitmq.protocol.message.flags import PULL_SUSPEND
from orbitmq.store.reader import MAX_PULL_BYTES

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection

MIN_PULL_BYTES = 100
"""A client that asks for fewer bytes than this at once means it otherwise, as in RocketMQ."""


class PullRequest(NamedTuple):
    """The fields of a pull, in the order of ``pull_fields``, with the request that they came in."""

    connection: Connection
    header: Header
    serialize_type: int
    group: str
    topic: str
    queue_id: int
    offset: int
    max_count: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    subscription: str | None
    version: int
    expression_type: str | None
    max_message_bytes: int | None
    source: int | None

    @classmethod
    def parse(cls, connection: Connection, header: Header, serialize_type: int) -> PullRequest:
        """Raises ProtocolError for fields that are missing or not numbers."""
        return cls(connection, header, serialize_type, *pull_fields(header[EXT_FIELDS]))

    @property
    def may_be_held(self) -> bool:
        """True if the client accepts that the broker suspends the request (long polling)."""
        return bool(self.sys_flag & PULL_SUSPEND) and self.suspend_ms > 0

    @property
    def max_bytes(self) -> int:
        most = self.max_message_bytes
        return MAX_PULL_BYTES if most is None else max(most, MIN_PULL_BYTES)

    @property
    def in_bulk(self) -> bool:
        """True for reads of large ranges, as Spark does."""
        return IN_BULK in self.header[EXT_FIELDS]
