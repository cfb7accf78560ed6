"""Time slices: long requests run on the event loop in slices of a few milliseconds, and others in between.

Work on the tables of a broker has to happen on the event loop. Decoding a request and encoding an answer are pure,
so a thread does that for large ones: it gives up the interpreter lock every few milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.platform.loop_slices import in_slices
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.bodies import Body
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command

__all__ = ["MAX_JSON_BODY", "SMALL_BODY", "SMALL_TABLE", "check_body_size", "decoded", "encoded", "in_slices"]

SMALL_BODY = 32 * 1024
"""Bytes of a body that is decoded on the event loop, in about a millisecond."""

MAX_JSON_BODY = 4 * 1024 * 1024
"""Bytes of a JSON body from a client. The C parser holds the interpreter lock for some 20 ms for so many."""

SMALL_TABLE = 256
"""Entries of a table that is encoded on the event loop."""

BodyT = TypeVar("BodyT", bound=Body)


def check_body_size(request: Command) -> None:
    """Raise RequestRefusedError for a JSON body that is larger than any that is decoded."""
    size = len(request.body or b"")
    if size > MAX_JSON_BODY:
        count_refusal(Limit.JSON_BODY)
        raise RequestRefusedError(
            f"the body has {size} bytes, at most {MAX_JSON_BODY} are allowed for this request"
        )


async def decoded(shape: type[BodyT], data: bytes) -> BodyT:
    """A body, decoded by a thread if it is large. Raises ProtocolError."""
    return shape.decode(data) if len(data) <= SMALL_BODY else await in_thread(lambda: shape.decode(data))


async def encoded(body: Body, entries: int, *, standard_json: bool = False) -> bytes:
    """The bytes of a body, encoded by a thread if it has many entries. Its tables must not change meanwhile.

    ``standard_json`` puts numeric keys in quotes.
    """

    def encode() -> bytes:
        return body.encode(browser_compatible=standard_json)

    return encode() if entries <= SMALL_TABLE else await in_thread(encode)
