"""Parser of pull responses, for push consumers, lite pull consumers and range readers."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.client.errors import BrokerError
from orbitmq.client.instance.routes import MASTER
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.command.command import Command


class PullStatus(enum.Enum):
    """Result of a pull, named as in RocketMQ."""

    FOUND = enum.auto()
    NO_NEW_MSG = enum.auto()
    """The queue has nothing at the offset yet."""
    NO_MATCHED_MSG = enum.auto()
    """The broker skipped messages that do not match: the next pull begins behind them."""
    OFFSET_ILLEGAL = enum.auto()
    """The queue does not have the offset: the next pull begins where the broker says."""


_STATUSES: Mapping[int, PullStatus] = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class PullResponse(NamedTuple):
    """A parsed pull response."""

    status: PullStatus
    next_offset: int
    """Where the next pull begins."""
    broker_id: int
    """The replica to pull from next."""
    offset_delta: int
    """What a static topic adds to the offsets of this broker's records."""
    body: bytes
    """Stored records, one after the other."""
    remark: str | None
    fields: Mapping[str, str]

    @property
    def queue_bounds(self) -> tuple[int, int]:
        """Minimum and maximum offset of the queue. Raises ProtocolError if the response lacks them."""
        try:
            return int(self.fields["minOffset"]), int(self.fields["maxOffset"])
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"pull response without the queue's minOffset and maxOffset: {error!r}") from error


def parse_pull_response(response: Command, source: str) -> PullResponse:
    """Parse the response of the broker ``source``. Raises BrokerError if it refused the pull, and ProtocolError."""
    status = _STATUSES.get(response.code)
    if status is None:
        raise BrokerError(response.code, response.remark, source)
    fields = response.ext_fields
    try:
        return PullResponse(
            status,
            int(fields["nextBeginOffset"]),
            int(fields.get("suggestWhichBrokerId") or MASTER),
            int(fields.get("offsetDelta") or 0),
            response.body or b"",
            response.remark,
            fields,
        )
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"pull response without a next offset: {error!r}") from error
