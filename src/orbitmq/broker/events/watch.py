"""Event watch: passes what happens in the parts of a broker to its journal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orbitmq.protocol.broker_events import EventKind
from orbitmq.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.broker.events.journal import EventJournal
    from orbitmq.broker.runtime import Metadata
    from orbitmq.broker.send.flow_control import SendFlow
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store.background.service import StoreService

SLOW_FLUSH_SECONDS = 1.0

_HOT = frozenset(
    {
        *(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
        *(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE),
        *(RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.NOTIFICATION),
        *(RequestCode.END_TRANSACTION, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET),
    }
)
"""Requests whose handlers are not watched. The send processor reports its refusals itself."""

_USUAL = frozenset(
    {
        *(ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED),
        ResponseCode.QUERY_NOT_FOUND,
    }
)
"""Responses that are not refusals."""

_CODE = re.compile(rb'"code":(-?\d+)')
_REMARK = re.compile(rb'"remark":"((?:[^"\\]|\\.)*)"')
_HEADER_AT = 8


class EventWatch:
    """Callbacks of the parts of one broker."""

    def __init__(self, journal: EventJournal) -> None:
        self._journal = journal
        self._topics: set[str] = set()

    def attach(self, metadata: Metadata, flow: SendFlow, service: StoreService) -> None:
        """Listen to groups, topics, flow control and flushes."""
        self._topics = set(metadata.topics.configs)
        metadata.topics.on_delete = self._topic_deleted
        metadata.groups.on_event = self._journal.record
        flow.on_change = self._sends_changed
        service.on_flush = self._flushed

    def topics_changed(self, names: Sequence[str]) -> None:
        for name in names:
            kind = EventKind.TOPIC_CHANGE if name in self._topics else EventKind.TOPIC_CREATE
            self._topics.add(name)
            self._journal.record(kind, name)

    def _topic_deleted(self, name: str) -> None:
        self._topics.discard(name)
        self._journal.record(EventKind.TOPIC_DELETE, name)

    def _sends_changed(self, refusal: tuple[int, str] | None) -> None:
        if refusal is None:
            self._journal.record(EventKind.SENDS_ACCEPTED)
        else:
            self._journal.record(EventKind.SENDS_REFUSED, _name(ResponseCode, refusal[0]), refusal[1])

    def _flushed(self, seconds: float, error: str | None) -> None:
        if error is not None:
            self._journal.record(EventKind.FLUSH_FAILED, "commitlog", error)
        elif seconds >= SLOW_FLUSH_SECONDS:
            self._journal.record(EventKind.SLOW_FLUSH, "commitlog", f"{seconds:.1f} s")

    # Refused requests

    def refused(self, request: int, response: int, client: str, remark: str) -> None:
        """Record a request that got an error response."""
        detail = f"{_name(ResponseCode, response)} to {client}: {remark}"
        self._journal.record(EventKind.REQUEST_REFUSED, _name(RequestCode, request), detail)

    def watched(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """These handlers; those of rare requests report the refusals among their immediate responses."""
        return {
            code: handler if code in _HOT else self._watched(int(code), handler)
            for code, handler in handlers.items()
        }

    def _watched(self, code: int, handler: Handler) -> Handler:
        def handle(connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
            answer = handler(connection, header, body, serialize_type)
            if isinstance(answer, bytes) and answer:
                found = _refusal(answer)
                if found is not None and found[0] not in _USUAL:
                    self.refused(code, found[0], connection.remote_address, found[1])
            return answer

        return handle


def _refusal(frame: bytes) -> tuple[int, str] | None:
    """Code and remark of a response, None if it is a success."""
    if frame[_HEADER_AT : _HEADER_AT + 1] != b"{":
        code = int.from_bytes(frame[_HEADER_AT : _HEADER_AT + 2], "big", signed=True)
        return (code, "") if code else None
    found = _CODE.search(frame, _HEADER_AT)
    if found is None or found[1] == b"0":
        return None
    remark = _REMARK.search(frame, _HEADER_AT)
    return int(found[1]), "" if remark is None else remark[1].decode("utf-8", "replace")


def _name(codes: Callable[[int], RequestCode | ResponseCode], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return str(code)
