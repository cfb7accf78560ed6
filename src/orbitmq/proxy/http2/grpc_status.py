"""Status codes of gRPC, and the errors with which calls end."""

from __future__ import annotations

import enum
import re
from urllib.parse import quote


class GrpcCode(enum.IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class GrpcError(Exception):
    """A call that ends with this status."""

    def __init__(self, code: GrpcCode, message: str) -> None:
        super().__init__(message)
        self.code = code


MAX_MESSAGE = 1024
"""Characters of a status message."""

_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def percent_encoded(message: str) -> str:
    """A status message as it travels."""
    return quote(message[:MAX_MESSAGE], safe=_PRINTABLE)


def parse_timeout(text: str) -> float | None:
    """The seconds of a ``grpc-timeout``; None if it is malformed."""
    found = _TIMEOUT.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS[found[2]]
