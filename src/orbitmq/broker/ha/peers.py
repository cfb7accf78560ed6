"""HA peers: which addresses may copy the log. RocketMQ's HA connection has no handshake that could decide it.

With authentication, and unless peers prove who they are (``haAuthenticationEnabled``), a stranger must not read by
the HA port what the main port refuses, so only this machine and what ``haAllowedPeers`` names are admitted there.
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
    """A function that returns why a peer at ``host:port`` may not copy the log; None if it may.

    ``has_users``: clients are authenticated, and peers are not.
    """
    networks = read_networks(text)
    if has_users:
        networks = (*LOOPBACK, *networks)

    def refusal_of(address: str) -> str | None:
        host = address.rpartition(":")[0].strip("[]")
        if not networks or is_trusted(host, networks):
            return None
        return f"{host} is not in haAllowedPeers, and does not prove who it is (haAuthenticationEnabled)"

    return refusal_of
