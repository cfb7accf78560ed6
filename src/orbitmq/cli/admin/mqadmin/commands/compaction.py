"""Compaction logs of Apache's brokers, read from a file. OrbitMQ's stores have none."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.cli.admin.mqadmin.message_text import message_text
from orbitmq.client.message import ReceivedMessage
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.record import MAGIC_BLANK, decode_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.cli.admin.mqadmin.call import Call
    from orbitmq.protocol.message.record import Record


async def dump_compaction_log(call: Call) -> None:
    """Print the messages of a file, without their bodies as Apache's tool does. Raises InvalidRequestError."""
    _dump(call)


def _dump(call: Call) -> None:
    if not call.flag("f"):
        raise InvalidRequestError("miss dump log file name")
    path = Path(call["f"])
    if not path.exists():
        raise InvalidRequestError(f"file {path} not exist.")
    if path.is_dir():
        raise InvalidRequestError(f"file {path} is a directory.")
    try:
        for record in records_of(path):
            call.print(message_text(ReceivedMessage(record, "null"), {}, with_body=False))
    except OSError as error:
        raise InvalidRequestError(f"file {path} cannot be read: {error}") from error
    except ProtocolError as error:
        raise InvalidRequestError(f"file {path}: {error}") from error


def records_of(path: Path) -> Iterator[Record]:
    """The records of a file up to its end mark or to what was not written. Raises OSError, ProtocolError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if not size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = 0
            while at + 8 <= size:
                length = int.from_bytes(data[at : at + 4], "big", signed=True)
                magic = int.from_bytes(data[at + 4 : at + 8], "big")
                if length <= 0 or magic == MAGIC_BLANK:
                    return
                try:
                    record = decode_record(data, at)
                except ProtocolError as error:
                    raise ProtocolError(f"no message at position {at}: {error}") from error
                yield record
                at += length
