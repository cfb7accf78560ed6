"""Compressed bodies: Java's formats in both directions, and what must not get through."""

from __future__ import annotations

import random
import zlib

import lz4.frame
import pytest
from backports import zstd

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.message.compression import (
    MAX_BODY_SIZE,
    Compression,
    compress,
    compressed_flag,
    compression_of,
    decompress,
)
from orbitmq.protocol.message.record import decode_record
from support.store import golden

kinds = pytest.mark.parametrize("kind", list(Compression))

TEXT = b" ".join(b"%d bottles of beer on the wall" % number for number in range(400))
NOISE = random.Random(7).randbytes(200_000)


def flag(kind: Compression) -> int:
    return compressed_flag(0, kind)


@kinds
@pytest.mark.parametrize(
    "body", [b"", b"x", TEXT, NOISE, bytes(5_000_000)], ids=["empty", "one", "text", "noise", "zeros"]
)
def test_a_body_survives_compression(kind: Compression, body: bytes) -> None:
    assert decompress(compress(body, kind), flag(kind)) == body


@kinds
def test_a_body_may_be_a_slice(kind: Compression) -> None:
    packed = compress(memoryview(TEXT)[5:], kind)
    assert decompress(memoryview(b"__" + packed)[2:], flag(kind)) == TEXT[5:]


def test_a_body_that_is_not_compressed_is_left_alone() -> None:
    assert decompress(b"plain", 0) == b"plain"
    assert decompress(b"plain", 0x700) == b"plain"
    assert decompress(memoryview(b"plain"), 0x30) == b"plain"


def test_the_sys_flag_names_the_compression() -> None:
    assert compression_of(0x101) is Compression.LZ4
    assert compression_of(0x231) is Compression.ZSTD
    assert compression_of(0x301) is Compression.ZLIB
    assert compression_of(0x1) is Compression.ZLIB
    assert compressed_flag(0x3A, Compression.LZ4) == 0x13B
    assert compressed_flag(0x301, Compression.ZSTD) == 0x201


def test_without_a_name_it_is_zlib() -> None:
    assert decompress(zlib.compress(TEXT), 0x1) == TEXT


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_an_unknown_compression_is_refused(kind: int) -> None:
    with pytest.raises(ProtocolError, match=f"type {kind}"):
        decompress(b"", kind << 8 | 1)


def test_the_formats_are_those_of_java_clients() -> None:
    assert compress(TEXT, Compression.ZLIB)[:2] == bytes.fromhex("785e")
    framed = compress(TEXT, Compression.LZ4)
    assert framed[:7] == bytes.fromhex("04224d18607073")
    assert framed[-4:] == bytes(4)
    written = compress(TEXT, Compression.ZSTD)
    assert written[:5] == bytes.fromhex("28b52ffd00")
    assert written[-3:] == bytes.fromhex("010000")


def test_golden_bodies_are_read_and_written_as_java_clients_write_them() -> None:
    compared = set()
    for row in golden.expected_records("basic"):
        if "bodyDecompressedSha256" in row:
            body = decode_record(golden.commit_log("basic"), row["physicalOffset"]).body
            kind = compression_of(row["sysFlag"])
            plain = decompress(body, row["sysFlag"])
            assert len(plain) == row["bodyLength"]
            if kind is not Compression.ZSTD:  # whose bytes depend on the version of the library
                assert compress(plain, kind) == body
            compared.add(kind)
    assert compared == set(Compression)


@kinds
@pytest.mark.parametrize("keep", [0, 1, 3, 4, 7, 15, 100, -9, -4, -3, -1])
def test_a_truncated_body_is_refused(kind: Compression, keep: int) -> None:
    with pytest.raises(ProtocolError):
        decompress(compress(TEXT, kind)[:keep], flag(kind))


@kinds
@pytest.mark.parametrize("data", [b"garbage", bytes(100), NOISE[:50], b"\xff" * 9])
def test_garbage_is_refused(kind: Compression, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decompress(data, flag(kind))


@kinds
def test_a_damaged_header_is_refused(kind: Compression) -> None:
    data = bytearray(compress(TEXT, kind))
    data[1] ^= 0xFF
    with pytest.raises(ProtocolError):
        decompress(bytes(data), flag(kind))


def test_a_wrong_checksum_is_refused() -> None:
    packed = zlib.compress(TEXT)
    with pytest.raises(ProtocolError):
        decompress(packed[:-1] + bytes([packed[-1] ^ 1]), 0x301)


def test_a_zlib_stream_with_a_dictionary_is_refused() -> None:
    stream = zlib.compressobj(zdict=b"bottles of beer")
    with pytest.raises(ProtocolError):
        decompress(stream.compress(TEXT) + stream.flush(), 0x301)


def test_what_follows_a_zlib_stream_is_ignored() -> None:
    assert decompress(zlib.compress(TEXT) + b"and more", 0x301) == TEXT


@pytest.mark.parametrize("kind", [Compression.LZ4, Compression.ZSTD])
def test_frames_may_follow_each_other_and_nothing_else_may(kind: Compression) -> None:
    one, two = compress(TEXT, kind), compress(NOISE, kind)
    assert decompress(one + two + one, flag(kind)) == TEXT + NOISE + TEXT
    with pytest.raises(ProtocolError):
        decompress(one + b"and more", flag(kind))
    with pytest.raises(ProtocolError, match="larger than"):
        decompress(one + two, flag(kind), len(TEXT) + len(NOISE) - 1)


def test_frames_of_other_writers_are_read() -> None:
    assert decompress(lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True), 0x101) == TEXT
    sized = zstd.compress(
        TEXT,
        options={zstd.CompressionParameter.compression_level: 19, zstd.CompressionParameter.checksum_flag: True},
    )
    assert decompress(sized, 0x201) == TEXT


@kinds
@pytest.mark.parametrize("size", [0, 1, 1000, 1024 * 1024, 1024 * 1024 + 1, 3_000_000])
def test_the_limit_is_exact(kind: Compression, size: int) -> None:
    body = bytes(size)
    packed = compress(body, kind)
    assert decompress(packed, flag(kind), size) == body
    if size:
        with pytest.raises(ProtocolError, match=f"larger than {size - 1} "):
            decompress(packed, flag(kind), size - 1)


@kinds
def test_a_bomb_is_refused(kind: Compression) -> None:
    bomb = compress(bytes(MAX_BODY_SIZE + 1), kind)
    assert len(bomb) < 400_000
    with pytest.raises(ProtocolError, match="larger than"):
        decompress(bomb, flag(kind))


def test_a_zstd_frame_of_nothing_but_repeats_is_refused() -> None:
    # The densest input there is: each block of four bytes stands for 128 KiB.
    block = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    bomb = bytes.fromhex("28b52ffd0058") + block * 100_000
    with pytest.raises(ProtocolError, match="larger than"):
        decompress(bomb, 0x201, 1_000_000)
