"""HPACK against the examples of RFC 7541, appendix C, and against what a peer must not send."""

from __future__ import annotations

import pytest

from orbitmq.proxy.http2.hpack import HeaderDecoder, HpackError, encode, huffman_decode

LIMIT = 1 << 16


def decoded(decoder: HeaderDecoder, block: str) -> list[tuple[str, str]]:
    return decoder.decode(bytes.fromhex(block), LIMIT)[0]


@pytest.mark.parametrize(
    "blocks",
    [
        (
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
        (
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
    ],
    ids=["plain", "huffman"],
)
def test_requests_of_one_connection(blocks: tuple[str, str, str]) -> None:
    decoder = HeaderDecoder()
    common = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")]
    assert decoded(decoder, blocks[0]) == common
    assert decoded(decoder, blocks[1]) == [*common, ("cache-control", "no-cache")]
    assert decoded(decoder, blocks[2]) == [
        (":method", "GET"), (":scheme", "https"), (":path", "/index.html"), (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ]  # fmt: skip


def test_entries_leave_a_full_table() -> None:
    decoder = HeaderDecoder()
    assert decoded(decoder, "3fe101") == []  # a table of 256 bytes
    blocks = [
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        "4883640effc1c0bf",
    ]
    first = decoded(decoder, blocks[0])
    assert first[0] == (":status", "302")
    assert first[3] == ("location", "https://www.example.com")
    assert decoded(decoder, blocks[1]) == [(":status", "307"), *first[1:]]


@pytest.mark.parametrize(
    "block",
    [
        "80",  # index 0
        "be",  # an entry that does not exist
        "00",  # no name
        "0003616263",  # no value
        "000361626305",  # a value that is not there
        "3fe21f",  # a table of more than 4,096 bytes
        "8220",  # a table size behind a field
        "ffffffffffffff7f",  # an endless number
        "00810000",  # padding that is no ones
    ],
)
def test_malformed_blocks(block: str) -> None:
    with pytest.raises(HpackError):
        decoded(HeaderDecoder(), block)


@pytest.mark.parametrize("raw", ["ffffffff", "fe", "3fffffffff"])
def test_malformed_huffman_texts(raw: str) -> None:
    with pytest.raises(HpackError):
        huffman_decode(bytes.fromhex(raw))


def test_fields_beyond_the_limit_are_left_out_and_the_table_stays_right() -> None:
    decoder = HeaderDecoder()
    fields, is_complete = decoder.decode(bytes.fromhex("400a637573746f6d2d6b65790c637573746f6d2d76616c7565"), 10)
    assert (fields, is_complete) == ([], False)
    assert decoded(decoder, "be") == [("custom-key", "custom-value")]


def test_what_is_encoded_is_decoded() -> None:
    fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-message", "x" * 1000)]
    assert HeaderDecoder().decode(encode(*fields), LIMIT) == (fields, True)
