"""Messages in every form: what is encoded decodes to itself, and no bytes make a decoder fail in its own way."""

from __future__ import annotations

import contextlib
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.hosts import host_bytes, host_text
from orbitmq.protocol.java import decode_utf8, hash_many, index_hash, index_hashes, string_hash, tags_code
from orbitmq.protocol.message.batch import encode_batch, is_inner_batch, iter_batch, split_record
from orbitmq.protocol.message.compression import Compression, compress, compressed_flag, decompress
from orbitmq.protocol.message.message_id import (
    UniqueIdFactory,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
)
from orbitmq.protocol.message.properties import encode, find, index_fields, parse, with_property, without
from orbitmq.protocol.message.record import (
    CRC_PROPERTY_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    crc_property_of,
    decode_record,
    encode_record,
    iter_records,
)
from support.store import golden

# Machines that run the tests are busy; how long an example takes says nothing.
unhurried = settings(deadline=None)

ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
ports = st.integers(0, 65535)
v4_hosts = st.builds(lambda ip, port: ip + port.to_bytes(4, "big"), st.binary(min_size=4, max_size=4), ports)
v6_hosts = st.builds(lambda ip, port: ip + port.to_bytes(4, "big"), st.binary(min_size=16, max_size=16), ports)
hosts = v4_hosts | v6_hosts
bodies = st.binary(max_size=300)
names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
values = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
property_maps = st.dictionaries(names, values, max_size=8)

# Mostly separators and the names looked for, so that every odd shape of an item comes up.
pieces = st.sampled_from([b"\x01", b"\x02", b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\xff", "键".encode()])
odd_properties = st.lists(pieces, max_size=16).map(b"".join)

samples = [
    golden.commit_log(name)[row["physicalOffset"] : row["physicalOffset"] + row["storeSize"]]
    for name in ("basic", "extra", "ipv6")
    for index, row in enumerate(golden.expected_records(name))
    if not row.get("blank") and (index % 50 == 0 or row["sysFlag"] & 0x1 or row["sysFlag"] & 0xC0)
]


def digest(data: bytes) -> None:
    """Read everything a client reads in the body of an answer."""
    for record in iter_records(data):
        host_text(record.born_host)
        host_text(record.store_host)
        parse(record.properties)
        index_fields(record.properties)
        decompress(record.body, record.sys_flag, 100_000)
        split_record(record)


@unhurried
@given(
    topic=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    queue_id=ints,
    body=bodies,
    properties=bodies,
    offsets=st.tuples(longs, longs, longs),
    flag=ints,
    sys_flag=ints,
    times=st.tuples(longs, longs),
    born_host=hosts,
    store_host=hosts,
    reconsume_times=ints,
    version_2=st.booleans(),
    crc_property=st.booleans(),
    around=st.tuples(st.binary(max_size=9), st.binary(max_size=9)),
)
def test_a_record_decodes_to_what_it_was_made_of(
    topic: str,
    queue_id: int,
    body: bytes,
    properties: bytes,
    offsets: tuple[int, int, int],
    flag: int,
    sys_flag: int,
    times: tuple[int, int],
    born_host: bytes,
    store_host: bytes,
    reconsume_times: int,
    version_2: bool,
    crc_property: bool,
    around: tuple[bytes, bytes],
) -> None:
    data = encode_record(
        topic=topic.encode(),
        queue_id=queue_id,
        body=body,
        properties=properties,
        queue_offset=offsets[0],
        physical_offset=offsets[1],
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=times[0],
        born_host=born_host,
        store_timestamp=times[1],
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=offsets[2],
        version_2=version_2,
        crc_property=crc_property,
    )
    record = decode_record(around[0] + data + around[1], len(around[0]))
    assert (record.topic, record.queue_id, record.body, record.flag) == (topic, queue_id, body, flag)
    assert (record.queue_offset, record.physical_offset) == offsets[:2]
    assert record.prepared_transaction_offset == offsets[2]
    assert (record.born_timestamp, record.store_timestamp) == times
    assert (record.born_host, record.store_host) == (born_host, store_host)
    assert record.sys_flag | 0x30 == sys_flag | 0x30
    assert record.sys_flag & 0x30 == (len(born_host) == 20) * 0x10 + (len(store_host) == 20) * 0x20
    assert record.magic == (MAGIC_V2 if version_2 else MAGIC_V1)
    assert (record.size, record.reconsume_times) == (len(data), reconsume_times)
    assert record.body_is_intact
    if crc_property:
        assert record.properties[-CRC_PROPERTY_SIZE:] == crc_property_of(data[:-CRC_PROPERTY_SIZE])
        ended = properties if not properties or properties.endswith(b"\x02") else properties + b"\x02"
        assert record.properties[:-CRC_PROPERTY_SIZE] == ended
    else:
        assert record.properties == properties


@unhurried
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_no_record(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        digest(data)


@unhurried
@given(magic=st.sampled_from([MAGIC_V1, MAGIC_V2]), sys_flag=ints, rest=st.binary(min_size=83, max_size=300))
def test_arbitrary_bytes_under_a_good_magic_raise_nothing_else(magic: int, sys_flag: int, rest: bytes) -> None:
    data = bytearray(struct.pack(">iI", 8 + len(rest), magic) + rest)
    struct.pack_into(">i", data, 36, sys_flag)
    with contextlib.suppress(ProtocolError):
        digest(bytes(data))


@settings(deadline=None, max_examples=400)
@given(
    sample=st.sampled_from(samples),
    changes=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 255)), max_size=4),
    long_changes=st.lists(st.tuples(st.sampled_from([0, 16, 36, 84]), ints), max_size=1),
    cut=st.integers(0, 40) | st.just(0),
)
def test_a_mutated_record_raises_nothing_else(
    sample: bytes, changes: list[tuple[int, int]], long_changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(sample)
    for position, value in changes:
        data[position % len(data)] = value
    for position, value in long_changes:
        struct.pack_into(">i", data, position, value)
    with contextlib.suppress(ProtocolError):
        digest(bytes(data[: len(data) - cut]))


@unhurried
@given(st.lists(st.tuples(ints, bodies, bodies), max_size=6))
def test_a_batch_decodes_to_its_items(items: list[tuple[int, bytes, bytes]]) -> None:
    decoded = iter_batch(memoryview(encode_batch(items)))
    assert [(flag, bytes(body), bytes(properties)) for flag, body, properties in decoded] == items


@unhurried
@given(
    items=st.lists(st.tuples(ints, bodies, bodies), min_size=1, max_size=4),
    position=st.integers(0, 10**6),
    value=st.binary(min_size=1, max_size=4),
)
def test_a_mutated_batch_raises_nothing_else(
    items: list[tuple[int, bytes, bytes]], position: int, value: bytes
) -> None:
    body = bytearray(encode_batch(items))
    position %= len(body)
    body[position : position + len(value)] = value
    with contextlib.suppress(ProtocolError):
        decoded = [(len(item), len(properties)) for _, item, properties in iter_batch(memoryview(body))]
        # What does decode accounts for every byte.
        assert sum(22 + size + properties_size for size, properties_size in decoded) == len(body)


@unhurried
@given(st.binary(max_size=100))
def test_arbitrary_bytes_as_a_batch_raise_nothing_else(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        list(iter_batch(memoryview(data)))


@unhurried
@given(ints)
def test_a_batch_is_inner_with_both_bits(sys_flag: int) -> None:
    assert is_inner_batch(sys_flag) == (bool(sys_flag & 0x40) and bool(sys_flag & 0x80))


@unhurried
@given(property_maps)
def test_properties_decode_to_themselves(properties: dict[str, str]) -> None:
    data = encode(properties)
    assert parse(data) == properties
    assert parse(data.decode()) == properties
    assert parse(data[:-1]) == properties
    for name, value in properties.items():
        assert find(data, name.encode()) == value.encode()


@unhurried
@given(odd_properties | bodies)
def test_look_ups_agree_with_parsing(data: bytes) -> None:
    # Latin-1 turns every byte into one character, so the rules can be compared byte by byte.
    parsed = {
        name.encode("latin-1"): value.encode("latin-1") for name, value in parse(data.decode("latin-1")).items()
    }
    assert index_fields(data) == (parsed.get(b"TAGS"), parsed.get(b"KEYS"), parsed.get(b"UNIQ_KEY"))
    for name in (b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"TAGSTAGS", "键".encode()):
        assert find(data, name) == parsed.get(name)
    parse(data)


@unhurried
@given(odd_properties, st.sets(st.sampled_from([b"TAGS", b"KEYS", b"a", b"UNIQ_KEY"])))
def test_removed_properties_are_gone_and_others_stay(data: bytes, gone: set[bytes]) -> None:
    wanted = {name: value for name, value in parse(data).items() if name.encode() not in gone}
    assert parse(without(data, gone)) == wanted


@unhurried
@given(odd_properties, st.sampled_from(["TAGS", "a", "new"]), values)
def test_an_added_property_is_there_once(data: bytes, name: str, value: str) -> None:
    added = with_property(data, name.encode(), value.encode())
    assert parse(added) == parse(data) | {name: value}
    assert added.endswith(f"{name}\x01{value}\x02".encode())
    assert parse(with_property(added, name.encode(), value.encode())) == parse(added)


@unhurried
@given(hosts)
def test_a_host_is_found_again_from_its_text(host: bytes) -> None:
    text = host_text(host)
    if host[:-4].startswith(bytes(10) + b"\xff\xff"):
        host = host[12:]
    assert host_bytes(text) == host


@unhurried
@given(st.binary(max_size=24), st.text(max_size=30))
def test_no_bytes_or_text_make_a_host_fail_otherwise(data: bytes, text: str) -> None:
    with contextlib.suppress(ProtocolError):
        host_text(data)
    for candidate in (text, f"{text}:80", f"[{text}]:80", f"127.0.0.1:{text}"):
        with contextlib.suppress(ProtocolError):
            assert len(host_bytes(candidate)) in {8, 20}


@unhurried
@given(hosts, st.integers(0, 2**63 - 1))
def test_an_offset_id_decodes_to_host_and_offset(host: bytes, offset: int) -> None:
    text = encode_offset_id(host, offset)
    assert len(text) == 2 * len(host) + 16
    assert text == text.upper()
    assert decode_offset_id(text) == (host, offset)


@unhurried
@given(
    address=st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    pid=st.integers(0, 2**22),
    loader=ints,
    now=st.integers(0, 2**41),
    age=st.integers(1, 27 * 86_400_000),
)
def test_a_unique_id_decodes_to_its_parts(address: bytes, pid: int, loader: int, now: int, age: int) -> None:
    identity = decode_unique_id(UniqueIdFactory(address, pid, loader, lambda: now)())
    assert (identity.address, identity.pid, identity.counter) == (address, pid & 0xFFFF, 0)
    assert identity.class_loader_hash == loader & 0xFFFFFFFF
    assert identity.time_ms(now + age) == now


@unhurried
@given(st.text(max_size=60) | st.text("0123456789abcdefABCDEF", min_size=30, max_size=58))
def test_no_text_makes_an_id_fail_otherwise(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        host, offset = decode_offset_id(text)
        assert encode_offset_id(host, offset) == text.upper()
    with contextlib.suppress(ProtocolError):
        decode_unique_id(text)


@unhurried
@given(st.binary(max_size=3000), st.sampled_from(Compression), st.integers(0, 3))
def test_a_body_survives_compression(body: bytes, kind: Compression, repeats: int) -> None:
    body *= 10**repeats
    packed = compress(body, kind)
    assert decompress(packed, compressed_flag(0, kind)) == body
    assert decompress(packed, compressed_flag(0, kind), len(body)) == body


@unhurried
@given(st.binary(max_size=200), st.sampled_from([1, 0x101, 0x201, 0x301]))
def test_arbitrary_bytes_as_a_compressed_body_raise_nothing_else(data: bytes, sys_flag: int) -> None:
    with contextlib.suppress(ProtocolError):
        decompress(data, sys_flag, 10_000)


@settings(deadline=None, max_examples=300)
@given(
    body=st.binary(min_size=1, max_size=2000),
    kind=st.sampled_from(Compression),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_a_mutated_compressed_body_raises_nothing_else(
    body: bytes, kind: Compression, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(compress(body * 3, kind))
    for position, value in changes:
        data[position % len(data)] = value
    with contextlib.suppress(ProtocolError):
        assert len(decompress(bytes(data), compressed_flag(0, kind), 50_000)) <= 50_000


@unhurried
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=80).map(str.encode) | bodies, max_size=8)
)
def test_hashes_of_many_are_those_of_each(texts: list[bytes]) -> None:
    single = [string_hash(decode_utf8(text)) for text in texts]
    assert hash_many(texts).tolist() == single == [tags_code(text) for text in texts]
    assert index_hashes(texts).tolist() == [index_hash(decode_utf8(text)) for text in texts]


@unhurried
@given(st.text(max_size=60))
def test_a_hash_follows_its_formula(text: str) -> None:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    assert string_hash(text) & 0xFFFFFFFF == value
    assert -(2**31) <= string_hash(text) < 2**31
