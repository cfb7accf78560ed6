"""Repeated heartbeats: a broker that recognises them is in the same state, and answers the same, as one that does
not."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.protocol.codes import RequestCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import Connection, Limits
from orbitmq.remoting.endpoint import Endpoint
from support.broker.client_registry_harness import ClientBroker, consumer, heartbeat, sql, subscription
from support.remoting_harness import MemoryTransport, decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.protocol.bodies import HeartbeatData
CONNECTIONS = 3
GROUPS = ("A", "B")

A, B = GROUPS
TWO_TOPICS = (subscription("t1"), subscription("t2"))
HEARTBEATS = [
    heartbeat("c1", consumer(A), producers=["P"]),
    heartbeat("c1", consumer(A, *TWO_TOPICS), producers=["P", "Q"]),
    heartbeat("c2", consumer(A), consumer(B), producers=["P"]),
    heartbeat("c2", consumer(A, subscription("t1", "a || b", 2))),
    heartbeat("c1", consumer(A, message_model=MessageModel.BROADCASTING)),
    heartbeat("c2", consumer(A, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)),
    heartbeat("c1", consumer(A), consumer(A, *TWO_TOPICS)),
    heartbeat("c1", consumer(A, sql("t1", "x = 1"))),
    heartbeat("c1", consumer(A, sql("t1", "x ="))),
    heartbeat("c1", consumer(A), heartbeat_fingerprint=7),
    heartbeat("c1", consumer(A, subscription_data_set=[]), heartbeat_fingerprint=7, without_sub=True),
    heartbeat("c1", consumer(A, consume_type=ConsumeType.CONSUME_ACTIVELY)),
    heartbeat("c1", consumer(A, unit_mode=True), producers=["Q"]),
]
"""Heartbeats that differ in one thing each, so that members replace what others announced about their group."""

which = st.integers(0, CONNECTIONS - 1)
beats = st.tuples(
    st.just("beat"),
    which,
    st.sampled_from([made.encode() for made in HEARTBEATS]),
    st.sampled_from([SerializeType.JSON, SerializeType.ROCKETMQ]),
)
steps = st.lists(
    st.one_of(
        beats,
        beats,
        beats,
        st.tuples(st.just("leave"), which, st.sampled_from(GROUPS), st.sampled_from(["P", "Q"])),
        st.tuples(st.just("close"), which),
        st.tuples(st.just("wait"), st.sampled_from([1, 50_000, 121_000])),
        st.tuples(st.just("again"), which),
        st.tuples(st.just("again"), which),
        st.tuples(st.just("group"), st.sampled_from(GROUPS), st.booleans()),
        st.tuples(st.just("no group"), st.sampled_from(GROUPS)),
        st.tuples(st.just("topic"), st.sampled_from(["t1", "%RETRY%A"]), st.booleans()),
        st.tuples(st.just("no topic"), st.sampled_from(["t1", "%RETRY%A"])),
        st.tuples(st.just("reject"), st.booleans()),
    ),
    max_size=40,
)


class Side:
    """One of the two brokers, with connections to it."""

    def __init__(self, *, knows_repeats: bool) -> None:
        self.broker = ClientBroker(knows_repeats=knows_repeats)
        self.endpoint = Endpoint(Limits(), on_close=self.broker.closed)
        self.peers = [self.connect() for _ in range(CONNECTIONS)]
        self.last = [b""] * CONNECTIONS

    def connect(self) -> tuple[Connection, MemoryTransport]:
        connection = Connection(self.endpoint, self.broker.handlers, is_server=True)
        transport = MemoryTransport()
        connection.connection_made(transport)
        return connection, transport

    async def take(self, step: tuple[Any, ...]) -> list[list[Command]]:
        """What each connection gets."""
        broker = self.broker
        match step:
            case "beat", int(index), bytes(body), SerializeType() as kind:
                request = Command(RequestCode.HEART_BEAT, 9, body=body, serialize_type=kind)
                self.last[index] = request.encode()
                self.peers[index][0].data_received(self.last[index])
            case "again", int(index):
                self.peers[index][0].data_received(self.last[index])
            case "leave", int(index), str(consuming), str(producing):
                fields = {"clientID": "c", "consumerGroup": consuming, "producerGroup": producing}
                request = Command(RequestCode.UNREGISTER_CLIENT, 8, ext_fields=fields)
                self.peers[index][0].data_received(request.encode())
            case "close", int(index):
                self.peers[index][0].connection_lost(None)
            case "wait", int(ms):
                broker.wait(ms)
            case "group", str(name), bool(notifies):
                broker.groups.update(
                    SubscriptionGroupConfig(name, notify_consumer_ids_changed_enable=notifies, retry_queue_nums=2)
                )
            case "no group", str(name):
                broker.groups.delete(name)
            case "topic", str(name), bool(order):
                broker.topics.update(TopicConfig(name, 1, 1, order=order))
            case "no topic", str(name):
                broker.topics.delete(name)
            case "reject", bool(is_rejecting):
                broker.config.reject_pull_consumer_enable = is_rejecting
                broker.epoch.advance()  # as a change of settings does
        for _ in range(20):
            await asyncio.sleep(0)
        got = [decoded(b"".join(transport.writes)) for _, transport in self.peers]
        for index, (connection, transport) in enumerate(self.peers):
            transport.writes.clear()
            if connection.is_closing:
                connection.connection_lost(None)
                self.peers[index] = self.connect()
        for commands in got:
            for command in commands:
                command.opaque = command.opaque if command.is_response else 0
        return got

    def state(self) -> object:
        clients = self.broker.clients
        index_of = {connection: index for index, (connection, _) in enumerate(self.peers)}

        def members_of(members: dict[Connection, Any]) -> object:
            return {
                index_of[one]: (member.client_id, member.last_update_ms, member.subscription_key)
                for one, member in members.items()
            }

        return (
            {
                name: (group.announced, members_of(group.members), group.subscriptions)
                for name, group in clients.consumers.items()
            },
            {name: members_of(members) for name, members in clients.producers.items()},
            {id_: index_of.get(clients.connection_of(id_) or self.peers[0][0]) for id_ in ("c1", "c2")},
            clients.memberships,
            {name: dataclasses.replace(config) for name, config in self.broker.topics.configs.items()},
            dict(self.broker.groups.configs),
            self.broker.filters.table(),
        )

    async def end(self) -> None:
        for connection, _ in self.peers:
            connection.connection_lost(None)
        assert self.broker.clients.repeats is None or not len(self.broker.clients.repeats)
        self.endpoint.close()
        await self.broker.writer.stop()


def beat(index: int, made: HeartbeatData) -> tuple[Any, ...]:
    return "beat", index, made.encode(), SerializeType.JSON


FIRST = beat(0, HEARTBEATS[0])
AGAIN = ("again", 0)
"""The first heartbeat creates its retry topic; from the second on, one that comes again is recognised."""


@settings(deadline=None, max_examples=150)
@given(steps)
# The settings of the group were replaced by another member.
@example([FIRST, AGAIN, beat(1, HEARTBEATS[5]), AGAIN])
@example([beat(0, HEARTBEATS[9]), AGAIN, beat(1, HEARTBEATS[0]), AGAIN])
# The memberships ended.
@example([beat(1, HEARTBEATS[0]), FIRST, AGAIN, ("leave", 0, "A", "Q"), AGAIN])
@example([FIRST, AGAIN, ("leave", 0, "B", "P"), AGAIN])
# The group, its retry topic or the settings changed.
@example([FIRST, AGAIN, ("no group", "A"), AGAIN])
@example([FIRST, AGAIN, ("no topic", "%RETRY%A"), AGAIN])
@example([beat(0, HEARTBEATS[11]), AGAIN, ("reject", True), ("wait", 1), AGAIN])
# One heartbeat says two things about a group.
@example([beat(0, HEARTBEATS[6]), AGAIN, AGAIN])
def test_a_recognised_heartbeat_does_what_processing_it_would_do(taken: Sequence[tuple[Any, ...]]) -> None:
    async def live() -> None:
        recognising, processing = Side(knows_repeats=True), Side(knows_repeats=False)
        for step in taken:
            assert await recognising.take(step) == await processing.take(step)
            assert recognising.state() == processing.state()
        await recognising.end()
        await processing.end()

    asyncio.run(live())
