"""Answers that say that a request could not be handled, in the kind of header that the request used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode, SerializeType
from orbitmq.protocol.command import Command
from orbitmq.protocol.flags import RESPONSE

if TYPE_CHECKING:
    from orbitmq.protocol.header import Header


def failed(header: Header, serialize_type: int, remark: str) -> bytes:
    """Code 1: something went wrong here; clients try another broker."""
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
