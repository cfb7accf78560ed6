"""The message record: its layout byte by byte, and everything that is refused."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.message.crc import body_crc
from orbitmq.protocol.message.record import (
    BLANK_SIZE,
    HEADS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    blank,
    crc_property_of,
    decode_record,
    encode_record,
    iter_records,
    properties_of,
    store_timestamp_at,
    topic_field,
)

if TYPE_CHECKING:
    import pathlib

LOCAL = bytes([127, 0, 0, 1])
BORN = LOCAL + (50000).to_bytes(4, "big")
STORE = LOCAL + (10911).to_bytes(4, "big")
V6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")

HELLO = bytes.fromhex(
    "00000073daa320a73610a686000000030000000000000000000000000000000000000000000000000000018bcfe56800"
    "7f0000010000c3500000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c6f"
    "09546f70696354657374000a54414753015461674102"
)


def hello(**changes: object) -> bytes:
    fields: dict[str, object] = {
        "topic": b"TopicTest",
        "queue_id": 3,
        "body": b"hello",
        "properties": b"TAGS\x01TagA\x02",
        "born_timestamp": 1700000000000,
        "born_host": BORN,
        "store_timestamp": 1700000000001,
        "store_host": STORE,
    }
    return encode_record(**(fields | changes))  # type: ignore[arg-type]


def test_a_record_is_laid_out_field_by_field() -> None:
    assert hello() == HELLO
    assert len(HELLO) == MIN_RECORD_SIZE + len(b"hello") + len(b"TopicTest") + len(b"TAGS\x01TagA\x02")


def test_a_record_decodes_to_the_fields_it_was_made_of() -> None:
    record = decode_record(HELLO)
    assert (record.topic, record.queue_id, record.queue_offset) == ("TopicTest", 3, 0)
    assert (record.size, record.magic, record.physical_offset) == (115, MAGIC_V1, 0)
    assert (record.born_timestamp, record.born_host) == (1700000000000, BORN)
    assert (record.store_timestamp, record.store_host) == (1700000000001, STORE)
    assert (record.flag, record.sys_flag) == (0, 0)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (0, 0)
    assert (record.body, record.body_crc, record.properties) == (b"hello", 0x3610A686, b"TAGS\x01TagA\x02")
    assert record.body_is_intact


def test_the_crc_has_no_sign_bit() -> None:
    assert body_crc(b"Hello RocketMQ") == 0x69C865ED
    assert body_crc(b"") == 0


def test_a_changed_body_is_noticed() -> None:
    damaged = HELLO.replace(b"hello", b"jello")
    assert not decode_record(damaged).body_is_intact


def test_negative_numbers_survive() -> None:
    record = decode_record(hello(flag=-5, queue_id=-1, reconsume_times=-3, prepared_transaction_offset=-9))
    assert (record.flag, record.queue_id) == (-5, -1)
    assert (record.reconsume_times, record.prepared_transaction_offset) == (-3, -9)


@pytest.mark.parametrize(
    ("born", "store", "bits", "extra"),
    [(BORN, STORE, 0, 0), (V6, STORE, 0x10, 12), (BORN, V6, 0x20, 12), (V6, V6, 0x30, 24)],
)
def test_the_length_of_a_host_sets_its_bit(born: bytes, store: bytes, bits: int, extra: int) -> None:
    data = hello(born_host=born, store_host=store, sys_flag=0x30 | 0x8, store_timestamp=77)
    record = decode_record(data)
    assert record.sys_flag == 0x8 | bits
    assert (record.born_host, record.store_host) == (born, store)
    assert len(data) == 115 + extra
    assert HEADS[bits >> 4].size == 88 + extra
    assert struct.unpack_from(">q", data, store_timestamp_at(record.sys_flag)) == (77,)


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 21])
def test_a_host_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="born host"):
        hello(born_host=bytes(size))
    with pytest.raises(ProtocolError, match="store host"):
        hello(store_host=bytes(size))


def test_a_long_topic_needs_version_2() -> None:
    topic = b"%RETRY%" + b"g" * 200
    with pytest.raises(ProtocolError, match="version 1"):
        hello(topic=topic)
    data = hello(topic=topic, version_2=True)
    record = decode_record(data)
    assert (record.magic, record.topic) == (MAGIC_V2, topic.decode())
    assert len(data) == MIN_RECORD_SIZE + 1 + 5 + len(topic) + 10
    assert topic_field(b"ab", version_2=True) == b"\x00\x02ab"
    with pytest.raises(ProtocolError, match="version 2"):
        hello(topic=b"x" * 32768, version_2=True)


def test_a_topic_of_127_bytes_still_fits_version_1() -> None:
    assert decode_record(hello(topic=b"t" * 127)).topic == "t" * 127


def test_a_version_1_topic_length_above_127_is_negative_and_refused() -> None:
    # RocketMQ reads the byte as signed, so such a record ends its log and a client's list of messages;
    # reading on would make the two disagree about where the log ends.
    whole = encode_record(
        topic=b"t" * 127, queue_id=0, body=b"", properties=b"p" * 40, born_host=BORN, store_host=STORE
    )
    data = bytearray(whole)
    data[88] = 128
    data[89:219] = b"t" * 128 + (39).to_bytes(2, "big")
    with pytest.raises(ProtocolError, match="topic size -128"):
        decode_record(data)


def test_a_properties_length_above_32767_is_negative_and_refused() -> None:
    assert decode_record(hello(properties=b"p" * 32767)).properties == b"p" * 32767
    with pytest.raises(ProtocolError, match="at most 32767"):
        hello(properties=b"p" * 32768)
    data = bytearray(hello(properties=b"p" * 32767) + b"p")
    data[0:4] = len(data).to_bytes(4, "big")
    at = len(data) - 32768
    data[at - 2 : at] = (32768).to_bytes(2, "big")
    with pytest.raises(ProtocolError):
        decode_record(data)


def test_the_crc_property_covers_the_record_before_it() -> None:
    data = hello(crc_property=True)
    assert data[-20:] == crc_property_of(data[:-20])
    assert data[-20:-11] == b"__CRC32#\x01"
    assert data[-1:] == b"\x02"
    digits = data[-11:-1].decode()
    assert int(digits[::-1]) == body_crc(data[:-20])
    assert decode_record(data).properties == b"TAGS\x01TagA\x02" + data[-20:]


def test_the_crc_property_follows_an_unended_property() -> None:
    data = hello(properties=b"a\x01b", crc_property=True)
    assert decode_record(data).properties[:-20] == b"a\x01b\x02"


def test_the_crc_property_counts_for_the_limit_of_the_properties() -> None:
    hello(properties=b"p" * 32746 + b"\x02", crc_property=True)
    with pytest.raises(ProtocolError, match="32768 bytes"):
        hello(properties=b"p" * 32747 + b"\x02", crc_property=True)


def test_a_blank_holds_the_rest_of_the_file() -> None:
    assert blank(1000) == struct.pack(">iI", 1000, MAGIC_BLANK)
    assert len(blank(8)) == BLANK_SIZE
    with pytest.raises(ProtocolError, match="0xCBD43194"):
        decode_record(blank(1000) + bytes(992))


def test_records_follow_each_other_without_a_gap() -> None:
    data = hello(queue_offset=0) + hello(queue_offset=1, body=b"") + hello(queue_offset=2)
    assert [record.queue_offset for record in iter_records(data)] == [0, 1, 2]
    assert list(iter_records(b"")) == []


def test_a_torn_record_ends_the_iteration_with_an_error() -> None:
    records = iter_records(HELLO + HELLO[:-1])
    assert next(records).topic == "TopicTest"
    with pytest.raises(ProtocolError):
        next(records)


def test_a_record_is_read_from_the_middle_of_any_buffer(tmp_path: pathlib.Path) -> None:
    data = b"before" + HELLO + b"after"
    path = tmp_path / "log"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        records = [decode_record(buffer, 6) for buffer in (data, bytearray(data), memoryview(data), mapped)]
    assert records == [decode_record(HELLO)] * 4


def test_a_record_must_end_before_the_end_it_is_given() -> None:
    data = HELLO + HELLO
    assert decode_record(data, 0, len(HELLO)) == decode_record(HELLO)
    assert decode_record(data, len(HELLO), 10_000) == decode_record(HELLO)
    with pytest.raises(ProtocolError):
        decode_record(data, 0, len(HELLO) - 1)
    with pytest.raises(ProtocolError):
        decode_record(data, len(HELLO) + 1)
    with pytest.raises(ProtocolError):
        decode_record(data, -1)


@pytest.mark.parametrize("end", range(len(HELLO)))
def test_a_record_cut_anywhere_is_refused(end: int) -> None:
    with pytest.raises(ProtocolError):
        decode_record(HELLO[:end])


@pytest.mark.parametrize(
    ("position", "value"),
    [
        pytest.param(0, -1, id="negative size"),
        pytest.param(0, 90, id="size below the smallest record"),
        pytest.param(0, 114, id="size one short"),
        pytest.param(0, 116, id="size beyond the buffer"),
        pytest.param(4, 0, id="no magic"),
        pytest.param(4, MAGIC_BLANK - (1 << 32), id="blank magic"),
        pytest.param(36, 0x30, id="fixed part longer than said"),
        pytest.param(84, -1, id="negative body size"),
        pytest.param(84, 6, id="body one byte longer"),
        pytest.param(84, 0x7FFFFFFF, id="body beyond everything"),
    ],
)
def test_a_number_that_contradicts_the_others_is_refused(position: int, value: int) -> None:
    data = bytearray(HELLO)
    struct.pack_into(">i", data, position, value)
    with pytest.raises(ProtocolError):
        decode_record(data)


def test_a_smallest_record_that_claims_long_hosts_is_refused() -> None:
    data = bytearray(encode_record(topic=b"", queue_id=0, body=b"", born_host=BORN, store_host=STORE))
    assert len(data) == MIN_RECORD_SIZE
    struct.pack_into(">i", data, 36, 0x30)
    with pytest.raises(ProtocolError, match="fixed part"):
        decode_record(data)


def test_a_topic_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode_record(hello(topic=b"\xff\xfe"))


@pytest.mark.parametrize("born_host", [bytes(8), bytes(20)])
@pytest.mark.parametrize("topic", [b"t", b"t" * 127, b"t" * 200])
def test_the_properties_of_a_record_are_found_without_decoding_it(born_host: bytes, topic: bytes) -> None:
    record = encode_record(
        topic=topic,
        queue_id=0,
        body=b"body",
        properties=b"KEYS\x01k\x02",
        born_host=born_host,
        store_host=STORE,
        version_2=len(topic) > 127,
    )
    assert properties_of(memoryview(record)) == b"KEYS\x01k\x02"
