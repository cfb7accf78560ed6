"""The compressed form of a broker's registration."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest

from orbitmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicFilterType,
    TopicQueueMappingInfo,
    is_compressed,
)
from orbitmq.protocol.errors import ProtocolError

BODY = RegisterBrokerBody(
    TopicConfigAndMappingSerializeWrapper(
        {
            "plain": TopicConfig("plain", 8, 4, 6),
            "主题": TopicConfig("主题", 1, 1, 2, TopicFilterType.MULTI_TAG, attributes={"a b": "c d", "e": "ü"}),
        },
        DataVersion(3, 2, 1),
        {"plain": TopicQueueMappingInfo("plain", total_queues=8, bname="b", curr_id_map={0: 1})},
    ),
    ["127.0.0.1:9876"],
)


def packed(*parts: bytes | int) -> bytes:
    plain = b""
    for part in parts:
        plain += struct.pack(">i", part) if isinstance(part, int) else struct.pack(">i", len(part)) + part
    return zlib.compress(plain)


def test_what_is_compressed_comes_back() -> None:
    data = BODY.encode_compressed()
    assert is_compressed(data)
    assert not is_compressed(BODY.encode())
    assert not is_compressed(b"")
    assert RegisterBrokerBody.decode_compressed(data) == BODY
    assert RegisterBrokerBody.decode_compressed(memoryview(data)) == BODY


def test_the_form_of_4x_has_neither_attributes_nor_mappings() -> None:
    data = BODY.encode_compressed(with_attributes=False, with_mappings=False)
    assert zlib.decompress(data).endswith(b'["127.0.0.1:9876"]')
    back = RegisterBrokerBody.decode_compressed(data).topic_config_serialize_wrapper
    assert back.topic_config_table["plain"] == TopicConfig("plain", 8, 4, 6)
    assert back.topic_config_table["主题"].attributes == {}
    assert back.topic_queue_mapping_info_map == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"{}",
        zlib.compress(b""),
        zlib.compress(b"\x00\x00"),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(b"\x7f\xff\xff\xff{}"),
        packed(b"{}"),
        packed(b"[]", 0, b"[]"),
        packed(b"{}", -1, b"[]"),
        packed(b"{}", 2**31 - 1, b"[]"),
        packed(b"{}", 1, b"t 1 1 6", b"[]"),
        packed(b"{}", 1, b"t 1 1 x SINGLE_TAG", b"[]"),
        packed(b"{}", 1, b"t 1 1 6 SINGLE_TAG {", b"[]"),
        packed(b"{}", 1, b"t 1 1 6 SINGLE_TAG []", b"[]"),
        packed(b"{}", 0, b"{}"),
        packed(b"{}", 0, b"[]", 1, b"[]"),
        packed(b"{}", 0, b"[]", 3),
        BODY.encode_compressed()[:-5],
        BODY.encode_compressed()[:20],
    ],
)
def test_what_is_no_compressed_registration_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        RegisterBrokerBody.decode_compressed(data)


def test_a_stream_that_inflates_beyond_the_limit_is_refused_before_it_is_in_memory() -> None:
    limit = 1024 * 1024
    bomb = zlib.compress(bytes(256 * limit), 9)
    assert len(bomb) < limit
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=str(limit)):
            RegisterBrokerBody.decode_compressed(bomb, limit=limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit


def test_a_stream_of_exactly_the_limit_is_taken() -> None:
    data = BODY.encode_compressed()
    size = len(zlib.decompress(data))
    assert RegisterBrokerBody.decode_compressed(data, limit=size) == BODY
    with pytest.raises(ProtocolError):
        RegisterBrokerBody.decode_compressed(data, limit=size - 1)
