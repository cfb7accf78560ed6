"""Events: the history that OrbitMQ's brokers keep of themselves, read from one broker or merged from all."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError, UnsupportedError
from orbitmq.admin.session import decode
from orbitmq.protocol.broker_events import GET_BROKER_EVENTS, MAX_EVENTS, BrokerEvents, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.session import AdminSession


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Event:
    """One event of one broker."""

    timestamp_ms: int
    broker_name: str
    address: str
    sequence: int
    """Counts the events of this broker, over restarts."""
    kind: str
    subject: str
    detail: str


class Events:
    """The history of brokers. Apache's brokers keep none: they are left out, or refuse if no other is meant."""

    def __init__(self, session: AdminSession, brokers: Brokers) -> None:
        self._session = session
        self._brokers = brokers

    async def read(
        self,
        *,
        cluster: str = "",
        broker: str = "",
        since_ms: int = 0,
        after: dict[str, int] | None = None,
        kinds: Iterable[str] = (),
        limit: int = MAX_EVENTS,
    ) -> list[Event]:
        """The newest events of all brokers together, oldest first. Raises UnsupportedError, InvalidRequestError.

        ``after`` has the last sequence that was read, by address of the broker: only later events are wanted.
        """
        if not 1 <= limit <= MAX_EVENTS:
            raise InvalidRequestError(f"a limit of events is 1 to {MAX_EVENTS}, not {limit}")
        wanted = _checked_kinds(kinds)
        chosen = await self._brokers.targets(cluster, broker, slaves=not broker, for_change=False)
        names = {one.address: one.broker_name for one in chosen}

        async def fetch(address: str) -> BrokerEvents:
            fields = {
                "since": since_ms,
                "afterSequence": (after or {}).get(address, 0),
                "kinds": ",".join(wanted),
                "limit": limit,
            }
            return decode(BrokerEvents, await self._session.call(address, GET_BROKER_EVENTS, fields), address)

        done, failed = await self._session.gather(names, fetch)
        for error in failed.values():
            if not done or not isinstance(error, UnsupportedError):
                raise error
        found = [
            Event(one.timestamp, names[address], address, one.sequence, one.kind, one.subject, one.detail)
            for address, answer in done.items()
            for one in answer.events
        ]
        return sorted(found)[-limit:]


def _checked_kinds(kinds: Iterable[str]) -> list[str]:
    """The kinds in RocketMQ's spelling of constants. Raises InvalidRequestError."""
    wanted = [kind.strip().upper().replace("-", "_") for kind in kinds]
    for kind in wanted:
        if kind not in list(EventKind):
            raise InvalidRequestError(f"unknown kind of event {kind!r}: there are {', '.join(sorted(EventKind))}")
    return wanted
