"""Request metrics: latency of requests by code, response code and result, on the Python path and the fast path.

Nothing here runs unless metrics are exported: ``measured`` wraps the handlers, and ``MeasuredFastPath`` replaces
the dispatcher of the fast path. That one measures batches: all requests of a batch have the batch's duration, which
is when their responses are sent.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from orbitmq.broker.fast_path.dispatcher import FastPath
from orbitmq.broker.metrics import names
from orbitmq.broker.metrics.labels import LabelSource, text_of
from orbitmq.metrics.instrument import Histogram
from orbitmq.protocol.bodies import SubscriptionGroupConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.header import CODE, EXT_FIELDS, FLAG, OPAQUE
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import ONEWAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orbitmq.broker.fast_path.ack import AckFastPath
    from orbitmq.broker.fast_path.offsets import OffsetFastPath
    from orbitmq.broker.fast_path.pop import PopFastPath
    from orbitmq.broker.fast_path.pull import PullFastPath
    from orbitmq.broker.fast_path.send import SendFastPath
    from orbitmq.metrics.snapshot import Sample
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler

SUCCESS, ONEWAY_RESULT, FAILED = "success", "oneway", "process_request_failed"
"""Values of the label ``result``."""

_LONG_POLLS = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION}
)
_CREATIONS = frozenset({RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP})
_MAX_PENDING = 1_000_000
_JSON_CODE = re.compile(rb'"code":(-?\d+)')
_JSON_OPAQUE = re.compile(rb'"opaque":(-?\d+)')
_HEADER_AT = 8

Key = tuple[int, int, bool, str]
"""Request code, response code, whether the request was held, and the result."""


class RequestMetrics:
    """Latencies of one broker's requests."""

    def __init__(self, labels: LabelSource, clock: Callable[[], float] = time.perf_counter) -> None:
        self._labels = labels
        self.clock = clock
        self._latencies: dict[Key, Histogram] = {}
        self._creations: dict[tuple[int, bool, str], Histogram] = {}
        """By code, success, and the label ``is_system``."""
        self._pending: dict[Connection, dict[int, tuple[int, float, str]]] = {}
        """Requests with deferred responses by opaque: code, start, and what they create."""
        self._pending_count = 0
        self.python_requests = 0
        self.native_requests = 0

    # The Python path

    def measured(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """These handlers with a measurement around each."""
        return {code: self._measured(int(code), handler) for code, handler in handlers.items()}

    def _measured(self, code: int, handler: Handler) -> Handler:
        def handle(connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
            started = self.clock()
            self.python_requests += 1
            try:
                answer = handler(connection, header, body, serialize_type)
            except Exception:
                self._record((code, ResponseCode.SYSTEM_ERROR, False, FAILED), self.clock() - started)
                raise
            if header[FLAG] & ONEWAY:
                self._record((code, ResponseCode.SUCCESS, False, ONEWAY_RESULT), self.clock() - started)
            elif answer is None:
                self._begin(connection, header, body, started)
            elif answer:
                begin = bytes(answer[0]) if isinstance(answer, list) else answer
                response = response_code(begin)
                self._record((code, response, False, SUCCESS), self.clock() - started)
                if code in _CREATIONS:
                    self._created(code, response, self.clock() - started, _created_name(header, body))
            return answer

        return handle

    def _begin(self, connection: Connection, header: Header, body: bytes, started: float) -> None:
        if self._pending_count >= _MAX_PENDING:
            return
        code = header[CODE]
        created = _created_name(header, body) if code in _CREATIONS else ""
        requests = self._pending.setdefault(connection, {})
        self._pending_count += header[OPAQUE] not in requests
        requests[header[OPAQUE]] = code, started, created

    def observe_response(self, connection: Connection, frame: bytes) -> None:
        """Record the response to a request that was deferred."""
        requests = self._pending.get(connection)
        if requests is None:
            return
        found = requests.pop(response_opaque(frame), None)
        if found is None:
            return
        self._pending_count -= 1
        if not requests:
            del self._pending[connection]
        code, started, created = found
        seconds, response = self.clock() - started, response_code(frame)
        self._record((code, response, code in _LONG_POLLS, SUCCESS), seconds)
        if code in _CREATIONS:
            self._created(code, response, seconds, created)

    def forget(self, connection: Connection) -> None:
        """Drop the pending requests of a closed connection."""
        self._pending_count -= len(self._pending.pop(connection, ()))

    def _record(self, key: Key, seconds: float, times: int = 1) -> None:
        latency = self._latencies.get(key)
        if latency is None:
            latency = self._latencies[key] = Histogram(names.RPC_LATENCY.bounds)
        latency.observe(seconds * 1000, times)

    def _created(self, code: int, response: int, seconds: float, name: str) -> None:
        topic, group = (name, "") if code == RequestCode.UPDATE_AND_CREATE_TOPIC else ("", name)
        key = code, response == ResponseCode.SUCCESS, self._labels.is_system(topic, group)[1]
        times = self._creations.get(key)
        if times is None:
            times = self._creations[key] = Histogram(names.TOPIC_CREATE_TIME.bounds)
        times.observe(seconds * 1000)

    # The fast path

    def served_natively(self, code: int, count: int, seconds: float) -> None:
        """Record requests that the native extension has served in one batch."""
        self.native_requests += count
        self._record((code, ResponseCode.SUCCESS, False, SUCCESS), seconds, count)

    # Reading

    def refused(self) -> Iterator[tuple[int, int, int]]:
        """Request code, response code and count of requests that were not successful."""
        for (code, response, _, result), latency in list(self._latencies.items()):
            if response != ResponseCode.SUCCESS or result == FAILED:
                yield code, response, latency.count

    def samples(self) -> Iterator[Sample]:
        for (code, response, is_held, result), latency in list(self._latencies.items()):
            pairs = self._labels.of(
                ("is_long_polling", text_of(is_held)),
                ("protocol_type", "remoting"),
                ("request_code", request_name(code)),
                ("response_code", response_name(response)),
                ("result", result),
            )
            yield names.RPC_LATENCY, pairs, latency.copy()
        for (code, is_created, is_system), times in list(self._creations.items()):
            is_topic = code == RequestCode.UPDATE_AND_CREATE_TOPIC
            pairs = self._labels.of(
                ("invocation_status", "success" if is_created else "failure"), ("is_system", is_system)
            )
            yield names.TOPIC_CREATE_TIME if is_topic else names.GROUP_CREATE_TIME, pairs, times.copy()


class MeasuredFastPath(FastPath):
    """The fast path's dispatcher with measurements, per batch."""

    def __init__(
        self,
        sends: SendFastPath | None,
        acks: AckFastPath | None,
        pulls: PullFastPath,
        pops: PopFastPath | None,
        offsets: OffsetFastPath | None,
        requests: RequestMetrics,
    ) -> None:
        super().__init__(sends, acks, pulls, pops, offsets)
        self._requests = requests
        self._adapters = [adapter for adapter in (sends, acks, pulls, pops, offsets) if adapter is not None]

    def take(self, connection: Connection, data: bytes) -> tuple[int, int]:
        requests = self._requests
        before, started = self._served(), requests.clock()
        taken = super().take(connection, data)
        count = self._served() - before
        if count:
            requests.served_natively(request_code(data), count, requests.clock() - started)
        return taken

    def take_together(self, received: list[tuple[Connection, bytes]]) -> list[int]:
        requests = self._requests
        before, started = self._served(), requests.clock()
        sizes = super().take_together(received)
        count, seconds = self._served() - before, requests.clock() - started
        if count:
            batches = sum(
                bool(size) and request_code(data) == RequestCode.SEND_BATCH_MESSAGE
                for (_, data), size in zip(received, sizes, strict=True)
            )
            batches = min(batches, count)
            if batches:
                requests.served_natively(RequestCode.SEND_BATCH_MESSAGE, batches, seconds)
            if count > batches:
                requests.served_natively(RequestCode.SEND_MESSAGE_V2, count - batches, seconds)
        return sizes

    def _served(self) -> int:
        return sum([adapter.served for adapter in self._adapters])


def request_code(frame: bytes) -> int:
    """The code in the header of a frame, in JSON with the code first or in binary."""
    if frame[_HEADER_AT : _HEADER_AT + 8] == b'{"code":':
        return int(frame[_HEADER_AT + 8 : frame.index(b",", _HEADER_AT)])
    return int.from_bytes(frame[_HEADER_AT : _HEADER_AT + 2], "big")


def response_code(frame: bytes) -> int:
    """The code of a response that this broker has made."""
    if frame[_HEADER_AT : _HEADER_AT + 1] != b"{":
        return int.from_bytes(frame[_HEADER_AT : _HEADER_AT + 2], "big", signed=True)
    found = _JSON_CODE.search(frame, _HEADER_AT)
    return ResponseCode.SYSTEM_ERROR if found is None else int(found[1])


def response_opaque(frame: bytes) -> int:
    """The opaque of a response that this broker has made."""
    if frame[_HEADER_AT : _HEADER_AT + 1] != b"{":
        return int.from_bytes(frame[_HEADER_AT + 5 : _HEADER_AT + 9], "big", signed=True)
    found = _JSON_OPAQUE.search(frame, _HEADER_AT)
    return -1 if found is None else int(found[1])


def request_name(code: int) -> str:
    """A request code as RocketMQ's label has it: the constant in lower case."""
    try:
        return RequestCode(code).name.lower()
    except ValueError:
        return str(code)


def response_name(code: int) -> str:
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)


def _created_name(header: Header, body: bytes) -> str:
    """The topic or group that a request creates, for the label ``is_system``."""
    if header[CODE] == RequestCode.UPDATE_AND_CREATE_TOPIC:
        return header[EXT_FIELDS].get("topic", "")
    try:
        return SubscriptionGroupConfig.decode(body or b"{}").group_name or ""
    except ProtocolError:
        return ""
