"""Records written by Apache RocketMQ: decoded to what its own decoder says, encoded to the same bytes."""

from __future__ import annotations

import hashlib

import pytest

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.hosts import host_bytes, host_text
from orbitmq.protocol.java import index_hash, tags_code
from orbitmq.protocol.message.compression import decompress
from orbitmq.protocol.message.message_id import decode_offset_id, encode_offset_id
from orbitmq.protocol.message.properties import find, index_fields, parse
from orbitmq.protocol.message.record import (
    CRC_PROPERTY_SIZE,
    MAGIC_BLANK,
    MAGIC_V2,
    blank,
    crc_property_of,
    decode_record,
    encode_record,
)
from support.store import golden

sets = pytest.mark.parametrize("name", golden.SETS)


def records(name: str) -> list[golden.Row]:
    return [row for row in golden.expected_records(name) if not row.get("blank") and not row.get("undecodable")]


@sets
def test_every_record_decodes_to_what_rocketmq_reads(name: str) -> None:
    log = golden.commit_log(name)
    for row in records(name):
        record = decode_record(log, row["physicalOffset"])
        plain = decompress(record.body, record.sys_flag)
        read = {
            "physicalOffset": record.physical_offset,
            "storeSize": record.size,
            "magic": f"0x{record.magic:08X}",
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "flag": record.flag,
            "sysFlag": record.sys_flag,
            "bornTimestamp": record.born_timestamp,
            "bornHost": host_text(record.born_host),
            "storeTimestamp": record.store_timestamp,
            "storeHost": host_text(record.store_host),
            "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset,
            "bodyCRC": record.body_crc,
            "bodyRawLength": len(record.body),
            "bodyLength": len(plain),
            "bodySha256": hashlib.sha256(record.body).hexdigest(),
            "properties": parse(record.properties),
            "msgId": encode_offset_id(record.store_host, record.physical_offset),
        }
        if "bodyDecompressedSha256" in row:
            read["bodyDecompressedSha256"] = hashlib.sha256(plain).hexdigest()
        assert read == {key: value for key, value in row.items() if key != "survives"}
        assert record.body_is_intact


@sets
def test_every_record_encodes_to_the_bytes_rocketmq_wrote(name: str) -> None:
    log = golden.commit_log(name)
    with_crc = golden.config(name).get("enabledAppendPropCRC") == "true"
    for row in records(name):
        start, size = row["physicalOffset"], row["storeSize"]
        written = log[start : start + size]
        # Properties have no canonical order, so their bytes are taken from the record.
        properties = decode_record(written).properties
        encoded = encode_record(
            topic=row["topic"].encode(),
            queue_id=row["queueId"],
            body=decode_record(written).body,
            properties=properties[:-CRC_PROPERTY_SIZE] if with_crc else properties,
            queue_offset=row["queueOffset"],
            physical_offset=start,
            flag=row["flag"],
            sys_flag=row["sysFlag"],
            born_timestamp=row["bornTimestamp"],
            born_host=host_bytes(row["bornHost"]),
            store_timestamp=row["storeTimestamp"],
            store_host=host_bytes(row["storeHost"]),
            reconsume_times=row["reconsumeTimes"],
            prepared_transaction_offset=row["preparedTransactionOffset"],
            version_2=int(row["magic"], 16) == MAGIC_V2,
            crc_property=with_crc,
        )
        assert encoded == written
        if with_crc:
            assert written[-CRC_PROPERTY_SIZE:] == crc_property_of(written[:-CRC_PROPERTY_SIZE])


@sets
def test_records_and_blanks_cover_the_log_without_a_gap(name: str) -> None:
    position = 0
    for row in golden.expected_records(name):
        assert row["physicalOffset"] == position
        position += row["storeSize"]
    if name != "torn":
        assert position == golden.expected_offsets(name)["maxPhyOffset"]


@sets
def test_a_blank_is_the_rest_of_its_file(name: str) -> None:
    log = golden.commit_log(name)
    file_size = int(golden.config(name)["mappedFileSizeCommitLog"])
    for row in golden.expected_records(name):
        if row.get("blank"):
            start = row["physicalOffset"]
            rest = file_size - start % file_size
            assert row["storeSize"] == rest
            assert log[start : start + 8] == blank(rest)
            assert int.from_bytes(log[start + 4 : start + 8], "big") == MAGIC_BLANK


def test_the_half_written_record_does_not_decode() -> None:
    (row,) = (row for row in golden.expected_records("torn") if row.get("undecodable"))
    with pytest.raises(ProtocolError):
        decode_record(golden.commit_log("torn"), row["physicalOffset"])


def test_the_sets_hold_the_rare_kinds() -> None:
    rows = [row for name in golden.SETS for row in records(name)]
    assert any(int(row["magic"], 16) == MAGIC_V2 for row in rows)
    assert {row["sysFlag"] & 0x701 for row in rows} >= {0, 0x101, 0x201, 0x301}
    assert any(row["sysFlag"] & 0x30 == 0x30 for row in rows)
    assert any(row["sysFlag"] & 0xC0 == 0xC0 for row in rows)
    assert {row["sysFlag"] & 0xC for row in rows} == {0, 8}  # half messages are stored as ordinary ones


@sets
def test_message_ids_lead_back_to_the_record(name: str) -> None:
    for row in records(name):
        assert decode_offset_id(row["msgId"]) == (host_bytes(row["storeHost"]), row["physicalOffset"])


@sets
def test_fields_for_the_index_are_those_of_the_parsed_properties(name: str) -> None:
    log = golden.commit_log(name)
    for row in records(name):
        properties = decode_record(log, row["physicalOffset"]).properties
        wanted = [row["properties"].get(key) for key in ("TAGS", "KEYS", "UNIQ_KEY")]
        assert index_fields(properties) == tuple(None if text is None else text.encode() for text in wanted)
        for key, value in row["properties"].items():
            assert find(properties, key.encode()) == value.encode()


@sets
def test_tags_codes_are_those_of_the_queue_units(name: str) -> None:
    by_offset = {row["physicalOffset"]: row for row in records(name)}
    compared = 0
    for unit in golden.expected_queue_units(name):
        row = by_offset[unit["physicalOffset"]]
        if row["topic"] == "SCHEDULE_TOPIC_XXXX" and "DELAY" in row["properties"]:
            continue  # the unit of a delayed message holds its delivery time
        tag = row["properties"].get("TAGS", "")
        assert tags_code(tag) == tags_code(tag.encode()) == unit["tagsCode"]
        compared += 1
    assert compared > len(by_offset) * 0.9


@sets
def test_key_hashes_are_those_of_the_index_queries(name: str) -> None:
    """Two keys find the same entries exactly if their hashes are equal; here every hit must have the hash."""
    by_offset = {row["physicalOffset"]: row for row in records(name)}
    for query in golden.expected_index(name):
        if query["type"] != "query":
            continue
        between = "#T#" if query["indexType"] == "T" else "#"
        asked = index_hash(f"{query['topic']}{between}{query['key']}")
        for offset in query["indexOffsets"]:
            if offset not in by_offset:
                continue  # the index keeps entries of records that recovery dropped
            row = by_offset[offset]
            properties = row["properties"]
            keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
            hashes = {index_hash(f"{row['topic']}#{key}") for key in keys if key}
            hashes.add(index_hash(f"{row['topic']}#T#{properties.get('TAGS')}"))
            assert asked in hashes
