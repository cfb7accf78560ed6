"""Messages as Apache's tool prints them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.cli.admin.mqadmin.java import PROPERTIES_CAPACITY, date_text, map_text
from orbitmq.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from orbitmq.admin.message.delivery import GroupTrack
    from orbitmq.cli.admin.mqadmin.call import Call
    from orbitmq.client.message import ReceivedMessage

BODIES = Path("/tmp/rocketmq/msgbodys")  # noqa: S108 - the place of Apache's tool; see _write_body
"""The folder that bodies are written to."""


def body_of(message: ReceivedMessage) -> bytes:
    """The body; as it is stored if it cannot be decompressed."""
    try:
        return message.body
    except ProtocolError:
        return bytes(message.record.body)


def text_of(body: bytes, charset: str) -> str:
    """Raises InvalidRequestError for an unknown charset."""
    try:
        return body.decode(charset, "replace")
    except LookupError:
        raise InvalidRequestError(f"unknown charset {charset!r}") from None


def properties_text(message: ReceivedMessage, extra: dict[str, str] | None = None) -> str:
    return map_text({**message.properties, **(extra or {})}, PROPERTIES_CAPACITY)


def message_text(message: ReceivedMessage, extra: dict[str, str], *, with_body: bool = True) -> str:
    """``MessageExt.toString``. ``extra`` are properties that a client adds to pulled messages."""
    record = message.record
    body = _bytes_text(body_of(message)) if with_body else "null"
    return (
        f"MessageExt [brokerName={message.broker_name}, queueId={record.queue_id}, storeSize={record.size}, "
        f"queueOffset={record.queue_offset}, sysFlag={record.sys_flag}, bornTimestamp={record.born_timestamp}, "
        f"bornHost=/{message.born_host}, storeTimestamp={record.store_timestamp}, storeHost=/{message.store_host}, "
        f"msgId={message.offset_message_id}, commitLogOffset={record.physical_offset}, bodyCRC={record.body_crc}, "
        f"reconsumeTimes={record.reconsume_times}, preparedTransactionOffset={record.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={record.flag}, "
        f"properties={properties_text(message, extra)}, body={body}, transactionId='null'}}]"
    )


def _bytes_text(body: bytes) -> str:
    """``Arrays.toString``."""
    return f"[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in body)}]"


def print_message(
    call: Call, message: ReceivedMessage, *, extra: dict[str, str] | None = None, with_id: bool = True
) -> None:
    """A message with its fields, and its body in a file."""
    body = body_of(message)
    file = _write_body(message.message_id, body)
    record = message.record
    lines = {"OffsetID": message.offset_message_id} if with_id else {}
    lines |= {
        "Topic": message.topic,
        "Tags": f"[{message.tags or 'null'}]",
        "Keys": f"[{message.properties.get('KEYS', 'null')}]",
        "Queue ID": str(record.queue_id),
        "Queue Offset": str(record.queue_offset),
        "CommitLog Offset": str(record.physical_offset),
        "Reconsume Times": str(record.reconsume_times),
        "Born Timestamp": date_text(record.born_timestamp),
        "Store Timestamp": date_text(record.store_timestamp),
        "Born Host": message.born_host,
        "Store Host": message.store_host,
        "System Flag": str(record.sys_flag),
        "Properties": properties_text(message, extra),
        "Message Body Path": str(file),
    }
    for name, value in lines.items():
        call.print(f"{name + ':':<20} {value}")
    if call.spec.name in {"queryMsgById", "queryMsgByOffset"} and call.flag("f"):
        call.print(f"{'Message Body:':<20} {text_of(body, call['f'])}")


def _write_body(message_id: str, body: bytes) -> Path:
    """Write a body to its file. A client chose the id, and the folder is open to all: no link is followed."""
    name = "".join(char for char in message_id if char.isalnum()) or "message"
    BODIES.mkdir(parents=True, exist_ok=True)
    file = BODIES / name
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(body)
    return file


def print_tracks(call: Call, tracks: list[GroupTrack]) -> None:
    """The groups that have consumed a message, or not."""
    if not tracks:
        call.print("\n\nWARN: No Consumer")
        return
    call.print("\n")
    for one in tracks:
        reason = one.reason or "null"
        call.print(f"MessageTrack [consumerGroup={one.group}, trackType={one.track}, exceptionDesc={reason}]")
