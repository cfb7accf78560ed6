"""HA peers: who may copy the log. The HA connection has no handshake, so only the address of a peer can decide.

With authentication a stranger must not read by the HA port what the main port refuses, so only this machine
and what ``haAllowedPeers`` names are admitted there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.platform.settings import ConfigError
from orbitmq.remoting.connect.trusted_proxies import is_trusted, read_networks

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPBACK = read_networks("127.0.0.0/8,::1")


def check_peers(text: str) -> None:
    """Raise ConfigError for a value of ``haAllowedPeers`` that is not a list of networks."""
    try:
        read_networks(text)
    except ValueError as error:
        raise ConfigError(f"haAllowedPeers: {error}; give addresses or CIDR blocks, separated by ','") from None


def admission(text: str, *, has_users: bool) -> Callable[[str], str | None]:
    """A function that returns why a peer at ``host:port`` may not copy the log; None if it may."""
    networks = read_networks(text)
    if has_users:
        networks = (*LOOPBACK, *networks)

    def refusal_of(address: str) -> str | None:
        host = address.rpartition(":")[0].strip("[]")
        if not networks or is_trusted(host, networks):
            return None
        return f"{host} is not in haAllowedPeers, and the HA connection has no authentication"

    return refusal_of
