"""Trusted proxies: networks whose PROXY headers are accepted.

A PROXY header replaces the address of a client, by which logs, tables and limits know it. RocketMQ accepts it
from every peer; here only proxies that the operator has listed may send it.
"""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_NETWORKS = 1024


def read_networks(text: str) -> tuple[Network, ...]:
    """The networks of a setting: addresses or CIDR blocks, separated by commas. Raises ValueError."""
    networks = tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())
    if len(networks) > MAX_NETWORKS:
        raise ValueError(f"{len(networks)} networks, at most {MAX_NETWORKS}")
    return networks


def is_trusted(host: object, networks: tuple[Network, ...]) -> bool:
    """The peer at this address may send a PROXY header."""
    if not networks:
        return False
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)
