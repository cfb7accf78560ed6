"""Answers that say that a request could not be handled, in the kind of header that the request used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode, SerializeType
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import RESPONSE
from orbitmq.remoting.errors import one_sentence, sendable

if TYPE_CHECKING:
    from orbitmq.protocol.header import Header

log = logging.getLogger("orbitmq.remoting")


def failed(error: Exception, header: Header, serialize_type: int, peer: str) -> bytes:
    """Code 1, for a handler that raised: clients try another broker.

    A mistake in the request is told to the peer in the decoder's words. Anything else is ours and gets a line in
    the log as well, with the place where it happened.
    """
    if isinstance(error, ProtocolError):
        return _refusal(ResponseCode.SYSTEM_ERROR, header, serialize_type, sendable(str(error)))
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" ({place.tb_frame.f_code.co_filename}:{place.tb_lineno})"
    log.error("request %d of %s failed: %s%s", header[0], peer, one_sentence(error), where)
    remark = f"the request failed here: {one_sentence(error)}"
    return _refusal(ResponseCode.SYSTEM_ERROR, header, serialize_type, remark)


def not_supported(header: Header, serialize_type: int) -> bytes:
    """Code 3, with the remark that RocketMQ gives, its leading space included."""
    remark = f" request type {header[0]} not supported"
    return _refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, header, serialize_type, remark)


def _refusal(code: ResponseCode, header: Header, serialize_type: int, remark: str) -> bytes:
    return Command(
        code=code,
        opaque=header[1],
        flag=RESPONSE,
        remark=remark,
        serialize_type=SerializeType(serialize_type),
    ).encode()
