"""AddressShare: counts the connections of each address, so that one client does not take those of all others."""

from __future__ import annotations

import functools
import ipaddress
import logging

from orbitmq.platform.limit_counts import Limit, count_refusal

log = logging.getLogger("orbitmq.remoting")


class AddressShare:
    """The connections of one server by address. Addresses of this machine have no limit: operators get in."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, int] = {}
        self._reported: set[str] = set()

    def take(self, remote_address: str) -> bool:
        """Count a new connection; False if its address has too many. Logged once each time that is so."""
        host = _limited_host(remote_address)
        if not host:
            return True
        count = self._counts.get(host, 0)
        if count >= self._most:
            count_refusal(Limit.CONNECTIONS_OF_ADDRESS)
            if host not in self._reported:
                self._reported.add(host)
                log.warning(
                    "remoting: %s has %d connections, refusing more: see remotingMaxConnectionsPerAddress",
                    host,
                    count,
                )
            return False
        self._counts[host] = count + 1
        return True

    def give_back(self, remote_address: str) -> None:
        """A connection that was counted is closed."""
        host = _limited_host(remote_address)
        left = self._counts.pop(host, 0) - 1
        if left > 0:
            self._counts[host] = left
        self._reported.discard(host)


@functools.lru_cache(10_000)
def _limited_host(remote_address: str) -> str:
    """The host of an address; empty for this machine, and for connections inside this process."""
    host = remote_address.rpartition(":")[0].strip("[]")
    try:
        return "" if ipaddress.ip_address(host).is_loopback else host
    except ValueError:
        return ""
