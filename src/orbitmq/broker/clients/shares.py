"""Shares: limits on the part of a client-filled table that one address, and one connection, may use.

Tables have a limit for all clients together. Without shares one client could fill a table, and all others would be
refused. With ``clientSharePercent=50`` the clients of one address use at most half of what the others have left, so
there is always room for a further address; a connection may use half of the share of its address. Entries that
operators create with admin requests do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.metadata.topics import MAX_TOPICS
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.metadata.topics import TopicTable


class ClientShares:
    """Counts the entries of one table by the clients that created them.

    A client is the remote address of its connection, ``host:port``. An empty one is the broker itself or unknown,
    and does not count. ``used`` returns the number of entries of the table, including those of operators.
    """

    def __init__(
        self,
        what: str,
        config: BrokerConfig,
        limit: Callable[[], int],
        used: Callable[[], int],
        setting: str = "",
        *,
        counted: Limit,
    ) -> None:
        """``what`` names the entries in error texts, ``setting`` the setting of their limit if it has one.

        Refusals count as those of ``counted``.
        """
        self._counted = counted
        self.what = what
        self._config = config
        self._limit = limit
        self._used = used
        self._setting = f" ({setting})" if setting else ""
        self._of_address: dict[str, int] = {}
        self._of_connection: dict[str, int] = {}

    def used_by(self, client: str) -> int:
        """Number of entries of the address of a client."""
        return self._of_address.get(_host(client), 0)

    def problem(self, client: str, count: int = 1) -> str | None:
        """The reason why a client may not add so many entries; None if it may."""
        limit, used = self._limit(), self._used()
        if used + count > limit:
            return f"this broker has {used} {self.what}, and at most {limit} are allowed{self._setting}"
        percent = self._config.client_share_percent
        if not client or percent >= 100:
            return None
        host = _host(client)
        mine = self._of_address.get(host, 0)
        share = max(percent * (limit - used + mine) // 100, 1)
        if mine + count > share:
            return (
                f"clients at {host} have {mine} {self.what} already, and {share} are their share of {limit} "
                "(clientSharePercent)"
            )
        mine, share = self._of_connection.get(client, 0), max(share // 2, 1)
        if mine + count > share:
            return (
                f"the connection {client} has {mine} {self.what} already, and {share} are its share of {limit} "
                "(clientSharePercent)"
            )
        return None

    def check(self, client: str, count: int = 1) -> None:
        """Raise RequestRefusedError if a client may not add so many entries."""
        problem = self.refusal(client, count)
        if problem is not None:
            raise RequestRefusedError(problem)

    def refusal(self, client: str, count: int = 1) -> str | None:
        """As ``problem``, for a client that is refused then: it is counted."""
        problem = self.problem(client, count)
        if problem is not None:
            count_refusal(self._counted)
        return problem

    def add(self, client: str, count: int = 1) -> None:
        """Count entries that a client has added."""
        if client:
            _change(self._of_address, _host(client), count)
            _change(self._of_connection, client, count)

    def remove(self, client: str, count: int = 1) -> None:
        """Subtract entries of a client that were removed."""
        self.add(client, -count)


class NamedShares(ClientShares):
    """Shares of a table of names that deletes entries without a callback: topics and groups.

    Deleted names are found and subtracted when a client reaches its share.
    """

    def __init__(
        self,
        what: str,
        config: BrokerConfig,
        limit: Callable[[], int],
        table: Container[str],
        used: Callable[[], int],
        *,
        counted: Limit,
    ) -> None:
        super().__init__(what, config, limit, used, counted=counted)
        self._table = table
        self._client_of: dict[str, str] = {}

    def check(self, client: str, count: int = 1) -> None:
        if self.problem(client, count) is not None:
            self._give_back_deleted()
            super().check(client, count)

    def created(self, client: str, name: str) -> None:
        """Count a topic or a group that a client has created."""
        if client and name not in self._client_of:
            self._client_of[name] = client
            self.add(client)

    def _give_back_deleted(self) -> None:
        for name in [name for name in self._client_of if name not in self._table]:
            self.remove(self._client_of.pop(name))


def shares_of_topics(config: BrokerConfig, topics: TopicTable) -> NamedShares:
    """Shares of the topics that clients create by sending and by joining groups."""
    return NamedShares(
        "topics",
        config,
        lambda: MAX_TOPICS,
        topics.configs,
        lambda: len(topics.configs),
        counted=Limit.TOPICS,
    )


def _host(client: str) -> str:
    return client.rpartition(":")[0]


def _change(counts: dict[str, int], key: str, count: int) -> None:
    left = counts.get(key, 0) + count
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)
