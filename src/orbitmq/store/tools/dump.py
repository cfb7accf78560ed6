"""Dumps the records of a store as rows, skipping damage.

A row has the names of RocketMQ's own classes (``physicalOffset``, ``storeSize``, …), so that the output can be
compared with that of Java tools.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message.compression import decompress
from orbitmq.protocol.message.flags import COMPRESSED
from orbitmq.protocol.message.message_id import decode_offset_id, encode_offset_id
from orbitmq.protocol.message.properties import index_fields, parse
from orbitmq.protocol.message.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, decode_record
from orbitmq.store.commitlog.scanner import Blank, Damage, LogView, Seen, scan_past_damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.commitlog.read_only import ReadOnlyLog

Row = dict[str, Any]


class BodyForm(enum.StrEnum):
    """Output format of bodies."""

    AUTO = "auto"
    """Text if it is UTF-8, hex otherwise."""
    TEXT = "text"
    HEX = "hex"
    NONE = "none"


@dataclasses.dataclass(slots=True, kw_only=True)
class Wanted:
    """Record filter. All given conditions must hold."""

    topic: str | None = None
    queue_id: int | None = None
    begin: int | None = None
    """Stored at or after this time, in milliseconds."""
    end: int | None = None
    """Stored at or before this time."""
    key: str | None = None
    message_id: str | None = None
    """An offset id or a unique id."""

    @property
    def is_everything(self) -> bool:
        return all(getattr(self, field.name) is None for field in dataclasses.fields(self))

    def matches(self, seen: Seen, *, has_the_id: bool = False) -> bool:
        if self.queue_id is not None and seen.queue_id != self.queue_id:
            return False
        if self.begin is not None and seen.store_timestamp < self.begin:
            return False
        if self.end is not None and seen.store_timestamp > self.end:
            return False
        if self.topic is not None and decode_utf8(seen.topic) != self.topic:
            return False
        if self.key is None and self.message_id is None:
            return True
        _, keys, unique_key = index_fields(seen.properties)
        if self.key is not None and self.key.encode("utf-8", "replace") not in (keys or b"").split(b" "):
            return False
        wanted = self.message_id
        return wanted is None or has_the_id or unique_key == wanted.encode("utf-8", "replace")


@dataclasses.dataclass(slots=True)
class Dumped:
    """One row, and the damage at its position if there is any."""

    row: Row | None
    """None if nothing there can be decoded."""
    damage: str | None = None
    body: bytes | None = None


def dump(
    log: ReadOnlyLog, wanted: Wanted, body: BodyForm = BodyForm.NONE, *, is_open: bool = False
) -> Iterator[Dumped]:
    """The selected records in log order, with blanks and damage where they occur.

    In a store that ``is_open`` the last record may be half written, which is not damage.
    """
    for fault in log.faults:
        yield Dumped(None, f"{fault.path}: {fault.reason}")
    offset = _offset_of(wanted.message_id)
    if offset is not None and (found := _at(log, offset, wanted, body)) is not None:
        yield found
        return
    start, stop = _range(log, wanted)
    expected = start
    for step in scan_past_damage(log, start, search_unwritten=True):
        if step.offset >= stop:
            return
        if step.offset != expected:
            yield from _blank(log, expected, wanted)
        if is_open and _is_being_written(log, step):
            return
        expected = step.offset + step.size
        if isinstance(step, Damage):
            yield from _damage(log, step, wanted)
        elif wanted.matches(step):
            yield _record(log, step, body)
    if expected < log.limit:
        yield from _blank(log, expected, wanted)


def _is_being_written(log: ReadOnlyLog, step: Seen | Damage) -> bool:
    if isinstance(step, Damage):
        return not step.size or log.is_whole(step.offset)
    return not step.body_is_intact and log.is_whole(step.offset)


# Where to look


def _offset_of(message_id: str | None) -> int | None:
    """The physical offset in an offset id; a unique id may look like one but points to no such record."""
    if message_id is None:
        return None
    try:
        return decode_offset_id(message_id)[1]
    except ProtocolError:
        return None


def _at(log: ReadOnlyLog, offset: int, wanted: Wanted, body: BodyForm) -> Dumped | None:
    buffer = log.buffer_at(offset)
    base = offset - offset % log.file_size
    if buffer is None or offset - base >= len(buffer):
        return None
    seen = LogView(base, buffer).look(offset - base)
    if not isinstance(seen, Seen) or not wanted.matches(seen, has_the_id=True):
        return None
    found = _record(log, seen, body)
    assert found.row is not None
    return found if found.row.get("msgId") == (wanted.message_id or "").upper() else None


def _range(log: ReadOnlyLog, wanted: Wanted) -> tuple[int, int]:
    """Offsets of the records of a time range, according to the first record of each file."""
    start, stop = log.start, log.limit
    for base in log.bases:
        first = LogView(base, log.mapped(base).buffer).look(0, check_crc=False)
        if not isinstance(first, Seen):
            continue
        if wanted.begin is not None and first.store_timestamp < wanted.begin:
            start = base
        if wanted.end is not None and first.store_timestamp > wanted.end and base > start:
            stop = min(stop, base)
    return start, max(stop, start)


# Rows


def _blank(log: ReadOnlyLog, offset: int, wanted: Wanted) -> Iterator[Dumped]:
    buffer = log.buffer_at(offset)
    base = offset - offset % log.file_size
    if buffer is None or offset - base >= len(buffer) or not wanted.is_everything:
        return
    found = LogView(base, buffer).look(offset - base)
    if isinstance(found, Blank):
        magic = f"0x{MAGIC_BLANK:08X}"
        yield Dumped({"physicalOffset": offset, "storeSize": found.size, "magic": magic, "blank": True})


def _damage(log: ReadOnlyLog, damage: Damage, wanted: Wanted) -> Iterator[Dumped]:
    """Bytes that are not a record. At the end of the log they are damage only if a record was begun there."""
    buffer = log.buffer_at(damage.offset)
    position = damage.offset % log.file_size
    head = bytes(buffer[position : position + 8]) if buffer is not None else b""
    size, magic = int.from_bytes(head[:4], "big", signed=True), int.from_bytes(head[4:], "big")
    is_begun = magic in {MAGIC_V1, MAGIC_V2}
    if not damage.size and not is_begun:
        return
    row: Row = {
        "physicalOffset": damage.offset,
        "storeSize": damage.size or size,
        "magic": f"0x{magic:08X}",
        "undecodable": True,
    }
    if damage.size:
        text = f"{damage.size} bytes at offset {damage.offset} are not a record: {damage.reason}"
    else:
        row["survives"] = False
        text = f"the log ends at offset {damage.offset} with a record that is not whole: {damage.reason}"
    yield Dumped(row if wanted.is_everything else None, text)


def _record(log: ReadOnlyLog, seen: Seen, form: BodyForm) -> Dumped:
    buffer = log.buffer_at(seen.offset)
    assert buffer is not None
    position = seen.offset % log.file_size
    data = bytes(buffer[position : position + seen.size])
    try:
        record = decode_record(data)
        born_host, store_host = host_text(record.born_host), host_text(record.store_host)
    except ProtocolError as error:
        row: Row = {
            "physicalOffset": seen.offset,
            "storeSize": seen.size,
            "magic": f"0x{int.from_bytes(data[4:8], 'big'):08X}",
            "undecodable": True,
        }
        return Dumped(row, f"the record at offset {seen.offset} cannot be decoded: {error}")
    plain: bytes | None = record.body
    body_error = None
    try:
        plain = decompress(record.body, record.sys_flag)
    except ProtocolError as error:
        plain, body_error = None, str(error)
    row = {
        "physicalOffset": record.physical_offset,
        "storeSize": record.size,
        "magic": f"0x{record.magic:08X}",
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": born_host,
        "storeTimestamp": record.store_timestamp,
        "storeHost": store_host,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyCRC": record.body_crc,
        "bodyRawLength": len(record.body),
        "bodyLength": len(record.body) if plain is None else len(plain),
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "properties": parse(record.properties),
        "msgId": encode_offset_id(record.store_host, record.physical_offset),
    }
    if plain is not None and record.sys_flag & COMPRESSED:
        row["bodyDecompressedSha256"] = hashlib.sha256(plain).hexdigest()
    if body_error is not None:
        row["bodyError"] = body_error
    body = record.body if plain is None else plain
    if form is not BodyForm.NONE:
        row.update(_shown(body, form))
    if seen.body_is_intact:
        return Dumped(row, None, body)
    row["bodyIntact"] = False
    return Dumped(row, f"the record at offset {seen.offset} has a body that fails its CRC", body)


def _shown(body: bytes, form: BodyForm) -> Row:
    if form is BodyForm.HEX:
        return {"bodyHex": body.hex()}
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body": body.decode("utf-8", "replace")} if form is BodyForm.TEXT else {"bodyHex": body.hex()}
