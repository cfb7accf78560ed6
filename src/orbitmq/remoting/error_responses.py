"""Error responses, with the kind of header (JSON or binary) that the request had."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.header import CODE, OPAQUE
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import RESPONSE
from orbitmq.protocol.remarks import hide_paths
from orbitmq.remoting.errors import one_sentence, sendable

if TYPE_CHECKING:
    from orbitmq.protocol.command.header import Header

log = logging.getLogger("orbitmq.remoting")


def failed(error: Exception, header: Header, serialize_type: int, peer: str) -> bytes:
    """SYSTEM_ERROR (1), for a handler that raised: clients try another broker.

    A malformed request is answered with the decoder's message. Anything else is a defect of the server and is also
    logged, with its place in the code.
    """
    if isinstance(error, ProtocolError):
        return remark_response(header, serialize_type, ResponseCode.SYSTEM_ERROR, sendable(str(error)))
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" ({place.tb_frame.f_code.co_filename}:{place.tb_lineno})"
    log.error("remoting: request %d of %s failed: %s%s", header[CODE], peer, one_sentence(error), where)
    remark = f"the request failed here: {hide_paths(one_sentence(error))}"
    return remark_response(header, serialize_type, ResponseCode.SYSTEM_ERROR, remark)


def not_supported(header: Header, serialize_type: int) -> bytes:
    """REQUEST_CODE_NOT_SUPPORTED (3), with RocketMQ's remark, its leading space included."""
    remark = f" request type {header[CODE]} not supported"
    return remark_response(header, serialize_type, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def remark_response(header: Header, serialize_type: int, code: int, remark: str) -> bytes:
    """The frame of a response that has a remark and no body, to a request with this header."""
    return Command(
        code=code,
        opaque=header[OPAQUE],
        flag=RESPONSE,
        remark=remark,
        serialize_type=SerializeType(serialize_type),
    ).encode()
