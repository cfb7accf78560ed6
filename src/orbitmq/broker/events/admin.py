"""GET_BROKER_EVENTS, a request of OrbitMQ: the history of a broker, for tools and the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from orbitmq.protocol.broker_events import GET_BROKER_EVENTS, MAX_EVENTS
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.fields import decode_fields, field_table
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from orbitmq.broker.events.journal import EventJournal
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

_FIELDS = field_table("since:l=0 afterSequence:l=0 kinds:s= limit:i=1000")


class EventRequests:
    """Requests for the history."""

    def __init__(self, journal: EventJournal) -> None:
        self._journal = journal

    @property
    def handlers(self) -> dict[int, Handler]:
        return {GET_BROKER_EVENTS: handler_of(self.events)}

    def events(self, request: Command, _: Connection) -> Command:
        fields = decode_fields(request.ext_fields, _FIELDS)
        limit = cast("int", fields["limit"])
        if not 1 <= limit <= MAX_EVENTS:
            raise RequestRefusedError(f"limit={limit}: give 1 to {MAX_EVENTS}", ResponseCode.INVALID_PARAMETER)
        kinds = {kind.strip() for kind in str(fields["kinds"] or "").split(",") if kind.strip()}
        found = self._journal.find(cast("int", fields["since"]), cast("int", fields["afterSequence"]), kinds, limit)
        return request.response(ResponseCode.SUCCESS, body=found.encode())
