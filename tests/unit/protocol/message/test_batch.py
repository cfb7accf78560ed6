"""Batch bodies and inner batches."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.message.batch import ITEM_SIZE, encode_batch, is_inner_batch, iter_batch, split_record
from orbitmq.protocol.message.compression import Compression, compress, compressed_flag
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import decode_record, encode_record
from support.store import golden

ITEMS = [
    (0, b"first", b"UNIQ_KEY\x01A\x02"),
    (-5, b"", b""),
    (0x7FFFABCD, b"x" * 1000, b"TAGS\x01t\x02KEYS\x01k\x02"),
]

HOST = bytes(8)


def items(body: bytes) -> list[tuple[int, bytes, bytes]]:
    return [(flag, bytes(item), bytes(properties)) for flag, item, properties in iter_batch(memoryview(body))]


def test_an_item_is_laid_out_field_by_field() -> None:
    body = encode_batch([(7, b"hi", b"a\x01b\x02")])
    assert body == struct.pack(">iiiii", 28, 0, 0, 7, 2) + b"hi" + b"\x00\x04a\x01b\x02"
    assert len(body) == ITEM_SIZE + 2 + 4


def test_a_batch_decodes_to_its_items() -> None:
    assert items(encode_batch(ITEMS)) == ITEMS
    assert items(encode_batch([])) == []


def test_items_are_slices_of_the_body() -> None:
    body = bytearray(encode_batch(ITEMS))
    (_, item, _), *_ = iter_batch(memoryview(body))
    body[20:25] = b"other"
    assert bytes(item) == b"other"


def test_size_magic_and_crc_of_an_item_are_not_read() -> None:
    body = bytearray(encode_batch(ITEMS))
    body[0:12] = b"\xff" * 12
    assert items(bytes(body)) == ITEMS


def test_a_batch_cut_anywhere_inside_an_item_is_refused() -> None:
    body = encode_batch(ITEMS[:2])
    first = len(encode_batch(ITEMS[:1]))
    for end in range(len(body)):
        if end in {0, first}:
            assert len(items(body[:end])) == end // first
        else:
            with pytest.raises(ProtocolError):
                items(body[:end])


@pytest.mark.parametrize("size", [-1, -22, -30, -(2**31), 6, 2**31 - 1])
def test_a_wrong_body_length_is_refused(size: int) -> None:
    body = bytearray(encode_batch(ITEMS[:1]))
    struct.pack_into(">i", body, 16, size)
    with pytest.raises(ProtocolError):
        items(bytes(body))


@pytest.mark.parametrize("size", [-1, -27, -32768, 12, 32767])
def test_a_wrong_properties_length_is_refused(size: int) -> None:
    body = bytearray(encode_batch(ITEMS[:1]))
    struct.pack_into(">h", body, 25, size)
    with pytest.raises(ProtocolError):
        items(bytes(body))


def test_properties_of_an_item_have_a_limit() -> None:
    assert items(encode_batch([(0, b"", b"p" * 32767)])) == [(0, b"", b"p" * 32767)]
    with pytest.raises(ProtocolError, match="32768"):
        encode_batch([(0, b"", b"p" * 32768)])


def test_a_record_that_is_no_batch_is_its_only_message() -> None:
    record = decode_record(encode_record(topic=b"T", queue_id=0, body=b"b", born_host=HOST, store_host=HOST))
    for sys_flag in (0, 0x40, 0x80):
        plain = dataclasses.replace(record, sys_flag=sys_flag)
        assert split_record(plain) == [plain]
        assert not is_inner_batch(sys_flag)


@pytest.mark.parametrize("packed", [False, True])
def test_an_inner_batch_splits_into_its_messages(packed: bool) -> None:
    body = encode_batch(ITEMS)
    sys_flag = 0x40 | 0x80 | 0x8
    if packed:
        body, sys_flag = compress(body, Compression.ZSTD), compressed_flag(sys_flag, Compression.ZSTD)
    record = decode_record(
        encode_record(
            topic=b"T",
            queue_id=2,
            body=body,
            properties=b"INNER_NUM\x013\x02",
            queue_offset=10,
            physical_offset=500,
            sys_flag=sys_flag,
            born_host=HOST,
            store_host=HOST,
        )
    )
    messages = split_record(record)
    assert [(message.flag, message.body, message.properties) for message in messages] == ITEMS
    assert [message.queue_offset for message in messages] == [10, 11, 12]
    assert {(message.topic, message.queue_id, message.physical_offset) for message in messages} == {("T", 2, 500)}
    assert {message.sys_flag for message in messages} == {0x8}
    assert all(message.body_is_intact for message in messages)
    assert record.queue_offset == 10


def test_a_damaged_inner_batch_is_refused() -> None:
    body = encode_batch(ITEMS)[:-1]
    record = encode_record(topic=b"T", queue_id=0, body=body, sys_flag=0xC0, born_host=HOST, store_host=HOST)
    with pytest.raises(ProtocolError):
        split_record(decode_record(record))


def test_the_inner_batches_of_a_golden_store_hold_as_many_messages_as_they_say() -> None:
    log = golden.commit_log("extra")
    units = {unit["physicalOffset"]: unit for unit in golden.expected_queue_units("extra") if "batchNum" in unit}
    seen = 0
    for offset, unit in units.items():
        record = decode_record(log, offset)
        messages = split_record(record)
        assert len(messages) == unit["batchNum"]
        assert [message.queue_offset for message in messages] == [
            unit["queueOffset"] + index for index in range(unit["batchNum"])
        ]
        if is_inner_batch(record.sys_flag):
            assert int(parse(record.properties)["INNER_NUM"]) == len(messages)
            assert all("UNIQ_KEY" in parse(message.properties) for message in messages)
            assert items(record.body) == items(
                encode_batch((message.flag, message.body, message.properties) for message in messages)
            )
            seen += 1
    assert seen > 0
