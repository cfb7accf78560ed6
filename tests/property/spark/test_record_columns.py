"""Columns made of many records at once say what decoding the records one by one says, whatever is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.message.batch import encode_batch, split_record
from orbitmq.protocol.message.compression import Compression, compress, compressed_flag, decompress
from orbitmq.protocol.message.flags import INNER_BATCH, NEED_UNWRAP
from orbitmq.protocol.message.message_id import encode_offset_id
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import Record, decode_record, encode_record, iter_records
from orbitmq.spark.records.records import Records
from orbitmq.spark.records.to_arrow import has_key, to_arrow
from orbitmq.spark.schema.columns import COLUMNS, TIMESTAMP, arrow_schema_of

unhurried = settings(deadline=None)

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
times = st.integers(0, 2**42) | longs
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
pieces = st.sampled_from(
    [b"\x01", b"\x02", b"\x01", b"\x02", b"\x00", b"TAGS", b"KEYS", b"UNIQ_KEY", b" ", b"a", b"\xff", "键".encode()]
)
odd_properties = st.lists(pieces, max_size=24).map(b"".join)
plain_properties = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "größe"]), st.text("ab 键", min_size=1, max_size=6)
).map(lambda items: "".join(f"{name}\x01{value}\x02" for name, value in items.items()).encode())


@st.composite
def records(draw: st.DrawFn) -> bytes:
    body = draw(st.binary(max_size=60))
    sys_flag = draw(ints) & ~0x7C1
    properties = draw(odd_properties | plain_properties)
    kind = draw(st.sampled_from(["plain", "plain", "packed", "not packed", "batch"]))
    if kind == "packed":
        packing = draw(st.sampled_from(Compression))
        body, sys_flag = compress(body, packing), compressed_flag(sys_flag, packing)
    elif kind == "not packed":
        sys_flag |= draw(st.sampled_from([0x1, 0x101, 0x201, 0x301, 0x701]))
    elif kind == "batch":
        items = draw(st.lists(st.tuples(ints, st.binary(max_size=9), odd_properties), max_size=3))
        body, sys_flag = encode_batch(items), sys_flag | NEED_UNWRAP | INNER_BATCH
    return encode_record(
        topic=draw(st.text("Topic-键%", max_size=20)).encode(),
        queue_id=draw(ints),
        body=body,
        properties=properties,
        queue_offset=draw(st.integers(0, 2**62)),
        physical_offset=draw(longs),
        flag=draw(ints),
        sys_flag=sys_flag,
        born_timestamp=draw(times),
        born_host=draw(hosts),
        store_timestamp=draw(times),
        store_host=draw(hosts),
        reconsume_times=draw(ints),
        version_2=draw(st.booleans()),
    )


def micros(millis: int) -> int | None:
    return millis * 1000 if abs(millis) <= (2**63 // 1000) - 1 else None


def host_or_none(host: bytes) -> str | None:
    try:
        return host_text(host)
    except ProtocolError:
        return None


def plain_body(record: Record) -> bytes:
    try:
        return decompress(record.body, record.sys_flag)
    except ProtocolError:
        return record.body


def expected_row(record: Record) -> dict[str, Any]:
    properties = parse(record.properties)
    keys = properties.get("KEYS")
    return {
        "topic": record.topic,
        "broker": "broker-a",
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "msg_id": encode_offset_id(record.store_host, record.physical_offset & (2**64 - 1)),
        "unique_id": properties.get("UNIQ_KEY"),
        "tags": properties.get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "body": plain_body(record),
        "properties": properties,
        "born_timestamp": micros(record.born_timestamp),
        "store_timestamp": micros(record.store_timestamp),
        "born_host": host_or_none(record.born_host),
        "store_host": host_or_none(record.store_host),
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    # Times as numbers: Python's own do not reach as far as Spark's.
    arrays = [column.cast(pa.int64()) if column.type == TIMESTAMP else column for column in batch.columns]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names).to_pylist()
    for row in rows:
        if "properties" in row:
            assert len(dict(row["properties"])) == len(row["properties"])
            row["properties"] = dict(row["properties"])
    return rows


@unhurried
@given(st.lists(records(), max_size=8))
def test_every_column_is_what_decoding_record_by_record_gives(given_records: list[bytes]) -> None:
    data = b"".join(given_records)
    found = Records.of(data)
    batch = to_arrow(found, list(COLUMNS), broker="broker-a")
    assert batch.schema == arrow_schema_of(list(COLUMNS))
    expected = [expected_row(part) for record in iter_records(data) for part in split_record(record)]
    assert rows_of(batch) == expected
    wanted = {"a", "键"}
    assert has_key(found, wanted).tolist() == [bool(wanted.intersection(row["keys"] or ())) for row in expected]


@unhurried
@given(st.lists(records(), min_size=1, max_size=6), st.data())
def test_records_can_be_taken_in_any_order_and_again(given_records: list[bytes], data: st.DataObject) -> None:
    found = Records.of(b"".join(given_records))
    everything = rows_of(to_arrow(found, list(COLUMNS), broker="broker-a"))
    if len(found):
        which = data.draw(st.lists(st.integers(0, len(found) - 1), max_size=8))
        taken = found.take(np.array(which, np.int64))
        assert rows_of(to_arrow(taken, list(COLUMNS), broker="broker-a")) == [everything[at] for at in which]


@unhurried
@given(st.lists(records(), min_size=1, max_size=4), st.data())
def test_damaged_bytes_are_refused_or_read_as_decoding_reads_them(
    given_records: list[bytes], data: st.DataObject
) -> None:
    damaged = bytearray(b"".join(given_records))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    try:
        expected = [part for record in iter_records(damaged) for part in split_record(record)]
    except ProtocolError:
        expected = None
    try:
        found = Records.of(bytes(damaged))
    except ProtocolError:
        # A topic that is not UTF-8 is no reason to refuse a record here, so there is never more reason than there.
        assert expected is None
        return
    rows = rows_of(to_arrow(found, list(COLUMNS), broker="broker-a"))
    if expected is not None:
        assert rows == [expected_row(record) for record in expected]


@unhurried
@given(st.lists(records(), min_size=1, max_size=4), st.integers(0, 200), st.integers(0, 200))
def test_records_are_found_at_given_positions(given_records: list[bytes], before: int, between: int) -> None:
    data, positions = bytes(before), []
    for record in given_records:
        positions.append(len(data))
        data += record + bytes(between)
    found = Records.of(data, np.array(positions, np.int64))
    parts = [part for record in given_records for part in split_record(decode_record(record))]
    assert rows_of(to_arrow(found, ["body", "queue_offset"], broker=None)) == [
        {"body": plain_body(part), "queue_offset": part.queue_offset} for part in parts
    ]
