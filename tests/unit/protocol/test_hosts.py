"""Host bytes and their text in Java's spelling."""

from __future__ import annotations

import pytest

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.hosts import address_text, host_bytes, host_text

SPELLINGS = [
    ("7f00000100002a9f", "127.0.0.1:10911"),
    ("0000000000000000", "0.0.0.0:0"),
    ("ffffffff0000ffff", "255.255.255.255:65535"),
    ("0000000000000000000000000000000100002a9f", "[0:0:0:0:0:0:0:1]:10911"),
    ("fd00000000000000000000000000abcd00000050", "[fd00:0:0:0:0:0:0:abcd]:80"),
    ("20010db8000000000000ff000042832900000050", "[2001:db8:0:0:0:ff00:42:8329]:80"),
]


@pytest.mark.parametrize(("data", "text"), SPELLINGS)
def test_a_host_is_spelled_as_java_does(data: str, text: str) -> None:
    assert host_text(bytes.fromhex(data)) == text
    assert host_bytes(text) == bytes.fromhex(data)


@pytest.mark.parametrize(
    "text",
    [
        "[::1]:10911",
        "::1:10911",
        "0:0:0:0:0:0:0:1:10911",
        "[0000:0000:0000:0000:0000:0000:0000:0001]:10911",
        "[::1%lo]:10911",
    ],
)
def test_an_ipv6_host_may_be_written_in_other_ways(text: str) -> None:
    assert host_text(host_bytes(text)) == "[0:0:0:0:0:0:0:1]:10911"


def test_an_ipv4_mapped_address_is_the_ipv4_address() -> None:
    mapped = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])
    assert address_text(mapped) == "10.0.0.1"
    assert host_text(mapped + bytes(4)) == "10.0.0.1:0"
    assert host_bytes("[::ffff:10.0.0.1]:9876") == host_bytes("10.0.0.1:9876")


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_other_lengths_are_no_hosts(size: int) -> None:
    with pytest.raises(ProtocolError, match="8 or 20"):
        host_text(bytes(size))


@pytest.mark.parametrize("size", [0, 3, 5, 8, 15, 17])
def test_other_lengths_are_no_addresses(size: int) -> None:
    with pytest.raises(ProtocolError, match="4 or 16"):
        address_text(bytes(size))


def test_a_port_has_two_bytes() -> None:
    with pytest.raises(ProtocolError, match="65536"):
        host_text(bytes.fromhex("7f00000100010000"))
    with pytest.raises(ProtocolError):
        host_text(bytes.fromhex("7f000001ffffffff"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "127.0.0.1",
        "127.0.0.1:",
        ":80",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:+1",
        "127.0.0.1: 1",
        "127.0.0.1:1_0",
        "127.0.0.1:²",
        "127.0.0.1:٣",
        "127.0.0:80",
        "127.0.0.256:80",
        "[127.0.0.1]:80",
        "[::1:80",
        "::1]:80",
        "[]:80",
        "[]",
        "[::1]",
        "broker-a:10911",
        "g::1:80",
        "127.0.0.1:80\n",
    ],
)
def test_a_text_that_is_no_address_and_port_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        host_bytes(text)
