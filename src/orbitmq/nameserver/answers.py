"""How processors answer: requests and answers as commands, and the answer that is asked for most in one piece."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.nameserver.errors import RequestRefusedError
from orbitmq.protocol.codes import LanguageCode, ResponseCode, SerializeType
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import RESPONSE
from orbitmq.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Connection, Handler

Processor: TypeAlias = "Callable[[Command, Connection], Command]"
"""What answers a request. It may raise RequestRefusedError and ProtocolError, and has then changed nothing."""

_PREFIX = struct.Struct(">iI")
_JSON = b'{"code":0,"flag":%d,"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
    RESPONSE,
    CURRENT_VERSION,
)
_BINARY = struct.Struct(">iIhBhiiII")
_BINARY_HEADER_SIZE = _BINARY.size - _PREFIX.size
_BINARY_WORD = int(SerializeType.ROCKETMQ) << 24 | _BINARY_HEADER_SIZE
_JAVA = int(LanguageCode.JAVA)


def handler_of(processor: Processor) -> Handler:
    """What the server calls for a request: it never fails because of what the peer sent."""

    def handle(connection: Connection, header: Header, body: bytes, serialize_type: int) -> bytes:
        request = Command.of((serialize_type, b"", body), header)
        try:
            return processor(request, connection).encode()
        except RequestRefusedError as error:
            return request.response(error.code, remark=str(error)).encode()
        except ProtocolError as error:
            return request.response(ResponseCode.SYSTEM_ERROR, remark=str(error)).encode()

    return handle


def success_with(body: bytes, opaque: int, serialize_type: int) -> bytes:
    """A successful answer that is all body, byte for byte as a ``Command`` encodes it."""
    if serialize_type:
        size = 4 + _BINARY_HEADER_SIZE + len(body)
        return _BINARY.pack(size, _BINARY_WORD, 0, _JAVA, CURRENT_VERSION, opaque, RESPONSE, 0, 0) + body
    header = _JSON % opaque
    return b"".join((_PREFIX.pack(4 + len(header) + len(body), len(header)), header, body))
