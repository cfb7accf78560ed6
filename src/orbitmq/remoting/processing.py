"""How the processors of a server answer: requests and answers as commands, refusals as exceptions.

For everything that is not asked thousands of times a second; what is has a handler of its own.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from orbitmq.protocol.codes import LanguageCode, ResponseCode, SerializeType
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import decode_fields
from orbitmq.protocol.flags import RESPONSE
from orbitmq.protocol.request_fields import REQUEST_FIELDS
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.remoting.refusals import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.protocol.header import Header
    from orbitmq.remoting.connection import Connection, Handler

Processor: TypeAlias = "Callable[[Command, Connection], Command | Coroutine[None, None, Command]]"
"""What answers a request. It may raise RequestRefusedError and ProtocolError, and has then changed nothing.

One that waits for something (a disk, another peer) is a coroutine function; the answer leaves when it is done.
"""

_PREFIX = struct.Struct(">iI")
_JSON = b'{"code":0,"flag":%d,"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
    RESPONSE,
    CURRENT_VERSION,
)
_BINARY = struct.Struct(">iIhBhiiII")
_BINARY_HEADER_SIZE = _BINARY.size - _PREFIX.size
_BINARY_WORD = int(SerializeType.ROCKETMQ) << 24 | _BINARY_HEADER_SIZE
_JAVA = int(LanguageCode.JAVA)

_running: set[asyncio.Task[None]] = set()
"""The loop holds tasks weakly; here they stay until they are done."""


class RequestRefusedError(Exception):
    """A request that is understood and not done; nothing was changed. The text is the remark of the answer."""

    def __init__(self, remark: str, code: int = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(remark)
        self.code = code


def handler_of(processor: Processor) -> Handler:
    """What the server calls for a request: it never fails because of what the peer sent."""

    def handle(connection: Connection, header: Header, body: bytes, serialize_type: int) -> bytes | None:
        request = Command.of((serialize_type, b"", body), header)
        try:
            answer = processor(request, connection)
        except (RequestRefusedError, ProtocolError) as error:
            return refusal(request, error).encode()
        if isinstance(answer, Command):
            return answer.encode()
        task = asyncio.get_running_loop().create_task(_answer_later(answer, request, connection))
        _running.add(task)
        task.add_done_callback(_running.discard)
        return None

    return handle


async def _answer_later(answer: Coroutine[None, None, Command], request: Command, connection: Connection) -> None:
    try:
        data = (await answer).encode()
    except (RequestRefusedError, ProtocolError) as error:
        data = refusal(request, error).encode()
    except Exception as error:
        data = failed(error, request.header, request.serialize_type, connection.remote_address)
    connection.answer(request.header, data)


def fields_of(request: Command) -> dict[str, Any]:
    """The header fields of a request, typed. Raises ProtocolError."""
    return cast("dict[str, Any]", decode_fields(request.ext_fields, REQUEST_FIELDS[request.code]))


def refusal(request: Command, error: RequestRefusedError | ProtocolError) -> Command:
    """The answer to a request that was refused, or that could not be read."""
    code = error.code if isinstance(error, RequestRefusedError) else ResponseCode.SYSTEM_ERROR
    return request.response(code, remark=str(error))


SUCCESS_PARTS = tuple((_JSON.replace(b"%d", b"\0")).split(b"\0"))
"""What stands around the opaque in the JSON header of a successful answer without a body."""


def success_with(body: bytes, opaque: int, serialize_type: int) -> bytes:
    """A successful answer that is all body, byte for byte as a ``Command`` encodes it."""
    if serialize_type:
        size = 4 + _BINARY_HEADER_SIZE + len(body)
        return _BINARY.pack(size, _BINARY_WORD, 0, _JAVA, CURRENT_VERSION, opaque, RESPONSE, 0, 0) + body
    header = _JSON % opaque
    return b"".join((_PREFIX.pack(4 + len(header) + len(body), len(header)), header, body))
