"""A proxy's header before the first frame says whose connection it is; what is none closes it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.nameserver import NameServerConfig
from orbitmq.platform.settings import ConfigError
from orbitmq.remoting.connect.proxy_header import (
    V1_SIGNATURE,
    V2_SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    read_proxy_header,
)
from orbitmq.remoting.connect.trusted_proxies import is_trusted, read_networks
from support.remoting_harness import ECHO, HOST, RawPeer, echo, on_each_loop, request, serving

if TYPE_CHECKING:
    from orbitmq.remoting import Connection

V1 = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 10911\r\n"
V1_IPV6 = b"PROXY TCP6 2001:db8::1 2001:db8::2 4124 10911\r\n"


def v2(family: int, addresses: bytes, command: int = 0x21) -> bytes:
    return V2_SIGNATURE + struct.pack(">BBH", command, family, len(addresses)) + addresses


ADDRESSES = bytes([192, 0, 2, 1, 198, 51, 100, 2]) + struct.pack(">HH", 56324, 10911)
V2 = v2(0x11, ADDRESSES)
V2_ENTRIES = v2(0x11, ADDRESSES + b"\x02\x00\x0abroker.org" + b"\xea\x00\x04vpc1" + b"\x03\x00\x02\xff\xfe")
V2_IPV6 = v2(
    0x21, bytes.fromhex("20010db8" + "00" * 11 + "01" + "20010db8" + "00" * 11 + "02") + struct.pack(">HH", 1, 2)
)

SAID = {
    "proxy_protocol_addr": "192.0.2.1",
    "proxy_protocol_port": "56324",
    "proxy_protocol_server_addr": "198.51.100.2",
    "proxy_protocol_server_port": "10911",
}


@pytest.mark.parametrize(
    ("wire", "source", "attributes"),
    [
        (V1, "192.0.2.1:56324", SAID),
        (V2, "192.0.2.1:56324", SAID),
        (
            V2_ENTRIES,
            "192.0.2.1:56324",
            SAID | {"proxy_protocol_tlv_0x02": "broker.org", "proxy_protocol_tlv_0xea": "vpc1"},
        ),
    ],
)
def test_a_header_names_source_and_destination(wire: bytes, source: str, attributes: dict[str, str]) -> None:
    assert read_proxy_header(wire + b"rest") == (len(wire), ProxyHeader(source, attributes))


@pytest.mark.parametrize(
    ("wire", "source"),
    [(V1_IPV6, "[2001:db8:0:0:0:0:0:1]:4124"), (V2_IPV6, "[2001:db8:0:0:0:0:0:1]:1")],
)
def test_ipv6_addresses_are_written_as_everywhere_else(wire: bytes, source: str) -> None:
    read = read_proxy_header(wire)

    assert read is not None
    assert read[1].source == source
    assert read[1].attributes["proxy_protocol_addr"] == "2001:db8:0:0:0:0:0:1"


@pytest.mark.parametrize(
    "wire",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n",
        v2(0x00, b"", command=0x20),
        v2(0x11, ADDRESSES, command=0x20),
        v2(0x31, bytes(216)),
        v2(0x00, b""),
    ],
)
def test_a_header_without_a_client_leaves_the_address_of_the_proxy(wire: bytes) -> None:
    assert read_proxy_header(wire) == (len(wire), ProxyHeader())


@pytest.mark.parametrize("wire", [V1, V1_IPV6, V2, V2_IPV6, V2_ENTRIES])
def test_a_part_of_a_header_waits_for_the_rest(wire: bytes) -> None:
    assert [read_proxy_header(wire[:size]) for size in range(len(wire))] == [None] * len(wire)


def test_frames_are_no_header() -> None:
    assert read_proxy_header(request(ECHO, 1)[:1]) == (0, ProxyHeader())
    assert read_proxy_header(b"PROXIES") == (0, ProxyHeader())


@pytest.mark.parametrize(
    "wire",
    [
        b"PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 70000\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.2 -1 1\r\n",
        b"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
        b"PROXY TCP4 host other 1 2\r\n",
        b"PROXY TCP4 \xff\xfe x 1 2\r\n",
        b"PROXY " + b"x" * 200,
        v2(0x11, ADDRESSES[:-1]),
        v2(0x21, ADDRESSES),
        v2(0x11, ADDRESSES, command=0x11),
        v2(0x11, ADDRESSES + b"\x02\x00"),
        v2(0x11, ADDRESSES + b"\x02\x00\x05abc"),
    ],
)
def test_what_begins_like_a_header_and_is_none_is_refused(wire: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        read_proxy_header(wire)


@given(st.sampled_from([b"", V1_SIGNATURE + b" ", V1_SIGNATURE + b" TCP4 ", V2_SIGNATURE]), st.binary(max_size=300))
@example(V2_SIGNATURE, b"\x21\x11\xff\xff")
def test_whatever_comes_is_a_header_or_none_or_an_error(start: bytes, rest: bytes) -> None:
    try:
        read = read_proxy_header(start + rest)
    except ProxyHeaderError:
        return
    assert read is None or 0 <= read[0] <= len(start + rest)


@on_each_loop
@pytest.mark.parametrize("wire", [V1, V2_ENTRIES])
@pytest.mark.parametrize("split", [0, 1, 5, 12, 20, 200])
async def test_a_connection_behind_a_proxy_is_its_clients(wire: bytes, split: int) -> None:
    seen: list[Connection] = []
    stream = wire + request(ECHO, 1)
    async with (
        serving({ECHO: echo}, on_open=seen.append, trusted_proxies="10.0.0.0/8, 127.0.0.1") as server,
        RawPeer.connected(server) as peer,
    ):
        peer.send(stream[:split])
        await peer.writer.drain()
        answer = await peer.ask(stream[split:])

    assert answer.opaque == 1
    assert seen[0].remote_address == "192.0.2.1:56324"
    assert seen[0].attributes["proxy_protocol_server_port"] == "10911"


@on_each_loop
async def test_a_proxys_own_connection_keeps_its_address() -> None:
    async with serving({ECHO: echo}, trusted_proxies=HOST) as server, RawPeer.connected(server) as peer:
        await peer.ask(b"PROXY UNKNOWN\r\n", request(ECHO, 1))
        (connection,) = server.connections

        assert connection.remote_address == peer.address


@on_each_loop
async def test_a_malformed_header_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with serving({ECHO: echo}, trusted_proxies=HOST) as server, RawPeer.connected(server) as peer:
        peer.send(b"PROXY TCP4 a b c d\r\n", request(ECHO, 1))

        assert await peer.rest() == b""
        assert server.connections == frozenset()
    assert len([record for record in caplog.records if "PROXY line" in record.getMessage()]) == 1


@on_each_loop
@pytest.mark.parametrize("wire", [V1, V2_ENTRIES, b"PROXY UNKNOWN\r\n"])
@pytest.mark.parametrize("trusted", ["", "192.0.2.0/24,::1"])
async def test_a_header_of_a_peer_that_is_no_trusted_proxy_closes_its_connection(
    wire: bytes, trusted: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving({ECHO: echo}, trusted_proxies=trusted) as server, RawPeer.connected(server) as peer:
        peer.send(wire, request(ECHO, 1))

        assert await peer.rest() == b""
        assert server.connections == frozenset()
    assert "PROXY header from an address that trustedProxies does not list" in caplog.text


@pytest.mark.parametrize(
    ("host", "networks", "trusted"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("::ffff:10.1.2.3", "10.0.0.0/8", True),
        ("fe80::1%eth0", "fe80::/10", True),
        ("11.1.2.3", "10.0.0.0/8,192.0.2.1", False),
        ("192.0.2.1", "10.0.0.0/8,192.0.2.1", True),
        ("127.0.0.1", "", False),
        (None, "10.0.0.0/8", False),
    ],
)
def test_a_proxy_is_trusted_by_its_own_address(host: str | None, networks: str, trusted: bool) -> None:
    assert is_trusted(host, read_networks(networks)) is trusted


@pytest.mark.parametrize("text", ["10.0.0.0/40", "proxy.example", "10.0.0.1/8"])
def test_a_list_of_proxies_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="trustedProxies"):
        NameServerConfig(trusted_proxies=text)
