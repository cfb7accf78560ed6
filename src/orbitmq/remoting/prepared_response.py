"""A prepared response: a success whose header fields are always the same, encoded except for its opaque."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FRAME_PREFIX
from orbitmq.protocol.message.flags import RESPONSE

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPAQUE = struct.Struct(">i")
_OPAQUE_AT = FRAME_PREFIX.size + 5
"""In a binary header the opaque follows the code, the language and the version."""
_PLACE = 1_234_567_890
"""Opaque of the frames that the parts are cut from. No header field contains it."""


class PreparedResponse:
    """Byte for byte what a ``Command`` with these fields encodes, at a fraction of the cost."""

    __slots__ = ("_after", "_before", "_binary_after", "_binary_before")

    def __init__(self, ext_fields: Mapping[str, str]) -> None:
        answer = Command(ResponseCode.SUCCESS, _PLACE, RESPONSE, dict(ext_fields))
        json = answer.encode()[FRAME_PREFIX.size :]
        self._before, self._after = json.split(b"%d" % _PLACE)
        answer.serialize_type = SerializeType.ROCKETMQ
        binary = answer.encode()
        self._binary_before, self._binary_after = binary[:_OPAQUE_AT], binary[_OPAQUE_AT + _OPAQUE.size :]

    def encode(self, serialize_type: int, opaque: int) -> bytes:
        """The frame, with the kind of header that the request had."""
        if serialize_type:
            return self._binary_before + _OPAQUE.pack(opaque) + self._binary_after
        header = b"%b%d%b" % (self._before, opaque, self._after)
        size = len(header)
        return FRAME_PREFIX.pack(size + 4, size) + header
