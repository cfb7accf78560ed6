"""Controllers of a group, as the keys of RocketMQ's two kinds of controller name them."""

from __future__ import annotations

import re
from typing import NamedTuple

from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.hosts import MAX_PORT

_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:\s]+):([0-9]{1,5})")


class Peer(NamedTuple):
    """One controller: its id among them, and where brokers reach it."""

    id: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def dledger_peers(text: str) -> tuple[Peer, ...]:
    """The peers of ``controllerDLegerPeers``: ``n0-host:port;n1-host:port``. Raises ConfigError."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        own_id, hyphen, address = part.partition("-")
        match = _ADDRESS.fullmatch(address)
        if not (own_id and hyphen and match) or int(match[2]) > MAX_PORT:
            raise ConfigError(f"controllerDLegerPeers has {part!r}: n0-host:port is expected")
        found.append(Peer(own_id, match[1], int(match[2])))
    return _distinct("controllerDLegerPeers", found)


def jraft_peers(ids: str, addresses: str) -> tuple[Peer, ...]:
    """The peers of ``jRaftInitConf`` and ``jRaftControllerRPCAddr``, which have one order. Raises ConfigError."""
    names = [part.strip() for part in ids.split(",") if part.strip()]
    places = [part.strip() for part in addresses.split(",") if part.strip()]
    if len(names) != len(places):
        raise ConfigError(
            f"jRaftInitConf names {len(names)} controllers and jRaftControllerRPCAddr {len(places)}: "
            "one address for each is expected"
        )
    found = []
    for name, place in zip(names, places, strict=True):
        match = _ADDRESS.fullmatch(place)
        if match is None or int(match[2]) > MAX_PORT:
            raise ConfigError(f"jRaftControllerRPCAddr has {place!r}: host:port is expected")
        found.append(Peer(name, match[1], int(match[2])))
    return _distinct("jRaftInitConf", found)


def _distinct(key: str, peers: list[Peer]) -> tuple[Peer, ...]:
    if len({peer.id for peer in peers}) < len(peers):
        raise ConfigError(f"{key} names a controller twice")
    return tuple(peers)
