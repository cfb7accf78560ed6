"""Repeated heartbeats: a client sends the same body every 30 s, which then only says that it lives.

Processing a heartbeat a second time changes nothing but the time of each membership, as long as nothing that it was
processed with has changed. So a heartbeat with the body of the last one of its connection renews those times and is
not decoded. Everything else is processed in full; so is one after any change of topics, groups or settings (the
``RouteEpoch``), or of what a heartbeat of another member may have replaced (``ConsumerGroup.announced``).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.filter import is_tag_type
from orbitmq.remoting.prepared_response import PreparedResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.clients.consumer_group import Announced, ClientChannel, ConsumerGroup
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.protocol.bodies import HeartbeatData
    from orbitmq.remoting import Connection

_SUPPORTED = {"IS_SUPPORT_HEART_BEAT_V2": "true"}
CHANGED = PreparedResponse({**_SUPPORTED, "IS_SUB_CHANGE": "true"})
UNCHANGED = PreparedResponse({**_SUPPORTED, "IS_SUB_CHANGE": "false"})


@dataclasses.dataclass(frozen=True, slots=True)
class _Processed:
    """The last heartbeat of a connection, and what it was processed with."""

    body_hash: int
    """Python's hash of the body, which is keyed by process: 64 bits, and a client could only deceive itself."""
    epoch: int
    consumes: Sequence[tuple[ConsumerGroup, ClientChannel, Announced]]
    produces: Sequence[tuple[str, ClientChannel]]
    answer: PreparedResponse


class RepeatedHeartbeats:
    """The last heartbeat of every connection. Call ``forget`` for every closed connection."""

    def __init__(self, clients: Clients, route_epoch: RouteEpoch) -> None:
        self._clients = clients
        self._route_epoch = route_epoch
        self._last: dict[Connection, _Processed] = {}

    def __len__(self) -> int:
        return len(self._last)

    def remember(self, connection: Connection, body: bytes, heartbeat: HeartbeatData) -> None:
        """Remember a heartbeat that was processed just now, if repeating it would change nothing."""
        consumers = heartbeat.consumer_data_set
        if len({consumer.group_name for consumer in consumers}) < len(consumers):
            # Of two entries for one group each replaces what the other said.
            self.forget(connection)
            return
        for consumer in consumers:
            # The filter of such a subscription may be dropped meanwhile, and comes back with a heartbeat.
            if not all(is_tag_type(one.expression_type) for one in consumer.subscription_data_set):
                self.forget(connection)
                return
        groups = [self._clients.consumers.get(consumer.group_name) for consumer in consumers]
        names = [producer.group_name for producer in heartbeat.producer_data_set]
        # Groups that it was refused for are refused until something changes.
        self._last[connection] = _Processed(
            hash(body),
            self._route_epoch.value,
            [
                (group, group.members[connection], group.announced)
                for group in groups
                if group is not None and connection in group.members
            ],
            [
                (name, self._clients.producers[name][connection])
                for name in names
                if connection in self._clients.producers.get(name, ())
            ],
            UNCHANGED if heartbeat.heartbeat_fingerprint else CHANGED,
        )

    def renew(self, connection: Connection, body: bytes, now_ms: int) -> PreparedResponse | None:
        """Renew the memberships of a connection that repeats its last heartbeat; None if it has to be processed."""
        last = self._last.get(connection)
        if last is None or last.body_hash != hash(body) or last.epoch != self._route_epoch.value:
            return None
        consumers, producers = self._clients.consumers, self._clients.producers
        for group, member, announced in last.consumes:
            if consumers.get(group.name) is not group or group.members.get(connection) is not member:
                return None
            if group.announced != announced:
                return None
        for name, member in last.produces:
            if producers.get(name, {}).get(connection) is not member:
                return None
        for _, member, _ in last.consumes:
            member.last_update_ms = now_ms
        for _, member in last.produces:
            self._clients.renew_producer(member, now_ms)
        return last.answer

    def forget(self, connection: Connection) -> None:
        """Process the next heartbeat of a connection in full."""
        self._last.pop(connection, None)
