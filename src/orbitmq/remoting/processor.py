"""Processors: request handlers with commands as requests and responses, and exceptions as error responses.

For requests that are not hot. Hot ones have handlers of their own, which encode responses directly.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from orbitmq.protocol.codes import LanguageCode, ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.frame import FRAME_PREFIX, MAX_FRAME
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import RESPONSE
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.remoting.error_responses import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting.connection import Connection, Handler

Processor: TypeAlias = "Callable[[Command, Connection], Command | Coroutine[None, None, Command]]"
"""Handler of a request. It may raise RequestRefusedError and ProtocolError, if it has changed nothing.

It may also raise NotReadyError, if it has changed nothing: it is called again when the future of the error is done.

A processor that waits for a disk or another peer is a coroutine function; its response is deferred.
"""

_JSON = b'{"code":0,"flag":%d,"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
    RESPONSE,
    CURRENT_VERSION,
)
_BINARY = struct.Struct(">iIhBhiiII")
_BINARY_HEADER_SIZE = _BINARY.size - FRAME_PREFIX.size
_BINARY_WORD = int(SerializeType.ROCKETMQ) << 24 | _BINARY_HEADER_SIZE
_JAVA = int(LanguageCode.JAVA)

_running: set[asyncio.Task[None]] = set()
"""Strong references to running tasks: the event loop holds only weak ones."""


class RequestRefusedError(Exception):
    """Error response to a request that was understood; nothing was changed. The text is its remark."""

    def __init__(self, remark: str, code: int = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(remark)
        self.code = code


class NotReadyError(Exception):
    """A request depends on data that is still being written to disk; nothing was changed.

    ``ready`` is done when the request can be processed again, or failed with RequestRefusedError.
    """

    def __init__(self, ready: asyncio.Future[None]) -> None:
        super().__init__("not ready: waiting for a write to disk")
        self.ready = ready

    async def wait(self) -> None:
        """Raises RequestRefusedError. The future is shared, so a cancelled waiter must not cancel it."""
        await asyncio.shield(self.ready)


def handler_of(processor: Processor) -> Handler:
    """The handler of a processor. It never fails because of the content of a request."""

    def handle(connection: Connection, header: Header, body: bytes, serialize_type: int) -> bytes | None:
        request = Command.of((serialize_type, b"", body), header)
        try:
            answer = processor(request, connection)
        except (RequestRefusedError, ProtocolError) as error:
            return refusal(request, error).encode()
        except NotReadyError as error:
            answer = _when_ready(error, processor, request, connection)
        if isinstance(answer, Command):
            return _encoded(answer, request)
        run_in_background(_answer_later(answer, processor, request, connection))
        return None

    return handle


def run_in_background(work: Coroutine[None, None, None]) -> None:
    """Run a coroutine that reports its own errors, with a strong reference to its task."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)


async def _when_ready(
    error: NotReadyError, processor: Processor, request: Command, connection: Connection
) -> Command:
    while True:
        await error.wait()
        try:
            answer = processor(request, connection)
            return answer if isinstance(answer, Command) else await answer
        except NotReadyError as another:
            error = another


async def _answer_later(
    answer: Coroutine[None, None, Command], processor: Processor, request: Command, connection: Connection
) -> None:
    try:
        try:
            response = await answer
        except NotReadyError as error:
            response = await _when_ready(error, processor, request, connection)
        data = _encoded(response, request)
    except (RequestRefusedError, ProtocolError) as error:
        data = refusal(request, error).encode()
    except Exception as error:
        data = failed(error, request.header, request.serialize_type, connection.remote_address)
    connection.answer(request.header, data)


def _encoded(response: Command, request: Command) -> bytes:
    """The frame of a response; an error if it is longer than what clients read: they would close the connection."""
    data = response.encode()
    if len(data) <= MAX_FRAME:
        return data
    text = f"the answer has {len(data)} bytes, at most {MAX_FRAME} are allowed: request less at once"
    return refusal(request, RequestRefusedError(text)).encode()


def fields_of(request: Command) -> dict[str, Any]:
    """The typed header fields of a request. Raises ProtocolError."""
    return cast("dict[str, Any]", decode_fields(request.ext_fields, REQUEST_FIELDS[request.code]))


def refusal(request: Command, error: RequestRefusedError | ProtocolError) -> Command:
    """The error response to a refused or malformed request."""
    code = error.code if isinstance(error, RequestRefusedError) else ResponseCode.SYSTEM_ERROR
    return request.response(code, remark=str(error))


SUCCESS_PARTS = tuple((_JSON.replace(b"%d", b"\0")).split(b"\0"))
"""The text around the opaque in the JSON header of a successful response without fields."""


def success_with(body: bytes, opaque: int, serialize_type: int) -> bytes:
    """A successful response without fields, byte for byte as a ``Command`` encodes it."""
    if serialize_type:
        size = 4 + _BINARY_HEADER_SIZE + len(body)
        return _BINARY.pack(size, _BINARY_WORD, 0, _JAVA, CURRENT_VERSION, opaque, RESPONSE, 0, 0) + body
    header = _JSON % opaque
    return b"".join((FRAME_PREFIX.pack(4 + len(header) + len(body), len(header)), header, body))
