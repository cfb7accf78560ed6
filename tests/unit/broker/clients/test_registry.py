"""Client registry: groups, heartbeat timeouts, and consistency under random actions."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.clients.consumer_group import ConsumerGroup
from orbitmq.protocol.bodies import SubscriptionData
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.java import string_hash
from orbitmq.remoting import Connection, Limits
from orbitmq.remoting.endpoint import Endpoint
from support.broker.client_registry_harness import (
    GROUP,
    T0,
    TOPIC,
    ClientBroker,
    client_broker,
    consumer,
    heartbeat,
    sql,
    subscription,
)
from support.remoting_harness import MemoryTransport, decoded, eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

SILENCE = 120_000

# Subscriptions of a group


def group_with(*subscriptions: SubscriptionData) -> ConsumerGroup:
    group = ConsumerGroup(GROUP)
    group.subscribe(subscriptions)
    return group


def test_added_and_removed_topics_are_a_change() -> None:
    group = group_with(subscription("a"))
    assert not group.subscribe([subscription("a", "x", version=2)])
    assert group.subscribe([subscription("a"), subscription("b")])
    assert group.subscribe([subscription("b")])
    assert list(group.subscriptions) == ["b"]


def test_the_greater_version_of_a_subscription_wins() -> None:
    group = group_with(subscription("a", "old", version=1))
    group.subscribe([subscription("a", "new", version=2)])
    group.subscribe([subscription("a", "old", version=1)])
    group.subscribe([subscription("a", "other", version=2)])
    assert group.subscriptions["a"].sub_string == "new"


def test_a_filter_is_compiled_once_for_an_expression() -> None:
    group = group_with(subscription("a", "x || y"), sql("b", "n > 3"))
    by_tag, by_sql = group.filter_of("a"), group.filter_of("b")
    assert by_tag is not None
    assert by_tag.matches_code is not None
    assert by_tag.matches_code(string_hash("x"))
    assert not by_tag.matches_code(string_hash("z"))
    assert by_sql is not None
    assert by_sql.matches_properties(b"n\x014\x02")
    group.subscribe([subscription("a", "x || y", version=2), sql("b", "n > 3", version=2)])
    assert group.filter_of("a") is by_tag
    assert group.filter_of("b") is by_sql


def test_a_filter_follows_its_subscription() -> None:
    group = group_with(subscription("a", "x"))
    assert group.filter_of("a") is not None
    group.subscribe([subscription("a", "*", version=2)])
    changed = group.filter_of("a")
    assert changed is not None
    assert changed.matches_all
    group.subscribe([])
    assert group.filter_of("a") is None


def test_empty_tags_match_nothing_and_invalid_sql_has_no_filter() -> None:
    group = group_with(subscription("a", "||"), sql("b", "n > > 3"))
    nothing = group.filter_of("a")
    assert nothing is not None
    assert nothing.matches_code is not None
    assert not nothing.matches_code(string_hash(""))
    assert not nothing.matches_properties(b"TAGS\x01x\x02")
    assert group.filter_of("b") is None


def test_a_subscription_by_a_java_class_matches_everything() -> None:
    group = group_with(SubscriptionData("a", "com.example.Filter", class_filter_mode=True))
    everything = group.filter_of("a")
    assert everything is not None
    assert everything.matches_all


async def test_groups_are_found_by_the_topics_they_subscribe_now() -> None:
    async with client_broker() as broker, broker.client() as client:
        said = consumer("A", subscription("a"), subscription("b")), consumer("B", subscription("b"))
        await client.beat(heartbeat("c1", *said))
        assert broker.clients.groups_subscribed_to("b") == {"A", "B"}
        await client.beat(heartbeat("c1", consumer("A", subscription("a"))))
        assert broker.clients.groups_subscribed_to("b") == {"B"}


# Client lookup


async def test_a_client_is_known_by_its_connection() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("nobody"))
        (connection,) = broker.server.connections
        assert broker.clients.client_of(connection) is None
        await client.beat(heartbeat("p1", producers=["PG"]))
        known = broker.clients.client_of(connection)
        assert known is not None
        assert (known.client_id, known.connection, known.last_update_ms) == ("p1", connection, T0)
        await client.beat(heartbeat("c1", consumer()))
        known = broker.clients.client_of(connection)
        assert known is not None
        assert known.client_id == "c1"


async def test_a_reconnected_client_is_on_its_latest_connection() -> None:
    async with client_broker() as broker, broker.client() as old, broker.client() as new:
        await old.beat(heartbeat("c1", consumer()))
        await new.beat(heartbeat("c1", consumer()))
        member = broker.clients.consumers[GROUP].member("c1")
        assert member is not None
        assert member.connection.remote_address == new.address
        assert broker.clients.consumers[GROUP].member("c2") is None


async def test_a_connection_that_changes_its_client_id_is_a_new_member() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer(), producers=["PG"]))
        await client.news()
        await client.beat(heartbeat("c2", consumer(), producers=["PG"]))
        assert broker.clients.consumers[GROUP].client_ids() == ["c2"]
        assert [one.client_id for one in broker.clients.producers["PG"].values()] == ["c2"]
        assert broker.clients.memberships == 2
        assert await client.news() == [GROUP]


# Heartbeat timeout


async def test_a_heartbeat_timeout_removes_the_client_and_closes_its_connection() -> None:
    async with client_broker() as broker, broker.client() as silent, broker.client() as beating:
        await silent.beat(heartbeat("c1", consumer(), producers=["PG"]))
        await beating.beat(heartbeat("c2", consumer()))
        broker.wait(SILENCE)
        assert broker.clients.consumers[GROUP].client_ids() == ["c1", "c2"]
        await beating.beat(heartbeat("c2", consumer()))
        await beating.news()
        broker.wait(1)
        assert broker.clients.consumers[GROUP].client_ids() == ["c2"]
        assert broker.clients.producers == {}
        assert await beating.news() == [GROUP]
        await silent.rest()
        await eventually(lambda: len(broker.server.connections) == 1)


async def test_a_heartbeat_timeout_of_one_group_keeps_the_others() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer("A"), consumer("B"), producers=["PG"]))
        broker.wait(SILENCE)
        await client.beat(heartbeat("c1", consumer("A")))
        broker.wait(1)
        assert list(broker.clients.consumers) == ["A"]
        assert broker.clients.producers == {}
        await client.beat(heartbeat("c1", consumer("A")))


async def test_the_filters_of_a_group_die_with_its_last_member() -> None:
    async with client_broker() as broker, broker.client() as first, broker.client() as second:
        said = consumer(GROUP, sql(TOPIC, "a = 1"))
        await first.beat(heartbeat("c1", said))
        await second.beat(heartbeat("c2", said))
        registered = broker.filters.find(GROUP, TOPIC)
        assert registered is not None
        await broker.gone(first)
        assert not registered.data.dead
        await broker.gone(second)
        assert registered.data.dead


# Random actions

GROUPS = ("A", "B", "C")
TOPICS = ("t1", "t2")
CONNECTIONS = 4


@dataclasses.dataclass(frozen=True)
class Beat:
    connection: int
    consumes: dict[str, frozenset[str]]
    produces: frozenset[str]
    client_id: str


@dataclasses.dataclass(frozen=True)
class Leave:
    connection: int
    consumer_group: str
    producer_group: str


@dataclasses.dataclass(frozen=True)
class Close:
    connection: int


@dataclasses.dataclass(frozen=True)
class Wait:
    ms: int


Step = Beat | Leave | Close | Wait

connections = st.integers(0, CONNECTIONS - 1)
some_groups = st.frozensets(st.sampled_from(GROUPS))
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        Beat,
        connections,
        st.dictionaries(st.sampled_from(GROUPS), st.frozensets(st.sampled_from(TOPICS))),
        some_groups,
        st.sampled_from(["x", "y"]),
    ),
    st.builds(Leave, connections, st.sampled_from(GROUPS), st.sampled_from(GROUPS)),
    st.builds(Close, connections),
    st.builds(Wait, st.sampled_from([1, 50_000, 100_000, SILENCE + 1])),
)


class Life:
    """A broker and a model of its tables: members with ids and last heartbeats, topics of groups."""

    def __init__(self) -> None:
        self.broker = ClientBroker()
        self.endpoint = Endpoint(Limits(), on_close=self.broker.closed)
        self.open = [self.connect() for _ in range(CONNECTIONS)]
        self.consumes: dict[str, dict[Connection, tuple[str, int]]] = {}
        self.produces: dict[str, dict[Connection, tuple[str, int]]] = {}
        self.topics: dict[str, frozenset[str]] = {}
        self.version = 0

    def connect(self) -> tuple[Connection, MemoryTransport]:
        connection = Connection(self.endpoint, self.broker.handlers, is_server=True)
        transport = MemoryTransport()
        connection.connection_made(transport)
        return connection, transport

    async def take(self, step: Step) -> None:
        before = self.state_of_groups()
        for _, transport in self.open:
            transport.writes.clear()
        if isinstance(step, Beat):
            self.beat(step)
        elif isinstance(step, Leave):
            self.leave(step)
        elif isinstance(step, Close):
            self.close(step.connection)
        else:
            self.wait(step.ms)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.check_tables()
        self.check_notices(before, self.state_of_groups())

    def ask(self, index: int, code: int, body: bytes | None = None, **fields: str) -> None:
        self.open[index][0].data_received(Command(code, 1, ext_fields=fields, body=body).encode())

    def beat(self, step: Beat) -> None:
        self.version += 1
        now = self.broker.clock.now_ms()
        connection = self.open[step.connection][0]
        said = [
            consumer(group, subscription_data_set=[subscription(topic, version=self.version) for topic in topics])
            for group, topics in step.consumes.items()
        ]
        body = heartbeat(step.client_id, *said, producers=step.produces).encode()
        self.ask(step.connection, RequestCode.HEART_BEAT, body)
        for group, topics in step.consumes.items():
            self.consumes.setdefault(group, {})[connection] = step.client_id, now
            self.topics[group] = topics
        for group in step.produces:
            self.produces.setdefault(group, {})[connection] = step.client_id, now

    def leave(self, step: Leave) -> None:
        self.ask(
            step.connection,
            RequestCode.UNREGISTER_CLIENT,
            clientID="x",
            consumerGroup=step.consumer_group,
            producerGroup=step.producer_group,
        )
        connection = self.open[step.connection][0]
        self.consumes.get(step.consumer_group, {}).pop(connection, None)
        self.produces.get(step.producer_group, {}).pop(connection, None)
        self.forget_empty()

    def close(self, index: int) -> None:
        connection = self.open[index][0]
        connection.connection_lost(None)
        for members in (*self.consumes.values(), *self.produces.values()):
            members.pop(connection, None)
        self.forget_empty()
        self.open[index] = self.connect()

    def wait(self, ms: int) -> None:
        self.broker.wait(ms)
        oldest = self.broker.clock.now_ms() - SILENCE
        expired = set()
        for members in (*self.consumes.values(), *self.produces.values()):
            for connection, (_, last) in tuple(members.items()):
                if last < oldest:
                    expired.add(connection)
                    del members[connection]
        self.forget_empty()
        left = {connection for members in self.members() for connection in members}
        for index, (connection, _) in enumerate(self.open):
            assert connection.is_closing == (connection in expired and connection not in left)
            if connection.is_closing:
                self.close(index)

    def members(self) -> list[dict[Connection, tuple[str, int]]]:
        return [*self.consumes.values(), *self.produces.values()]

    def forget_empty(self) -> None:
        for table in (self.consumes, self.produces):
            for group in [group for group, members in table.items() if not members]:
                del table[group]
                if table is self.consumes:
                    del self.topics[group]

    def state_of_groups(self) -> dict[str, tuple[dict[Connection, str], frozenset[str]]]:
        return {
            group: ({connection: id_ for connection, (id_, _) in members.items()}, self.topics[group])
            for group, members in self.consumes.items()
        }

    def check_tables(self) -> None:
        clients = self.broker.clients
        assert {
            name: {one: (member.client_id, member.last_update_ms) for one, member in group.members.items()}
            for name, group in clients.consumers.items()
        } == self.consumes
        assert {
            name: {one: (member.client_id, member.last_update_ms) for one, member in members.items()}
            for name, members in clients.producers.items()
        } == self.produces
        assert {name: frozenset(group.subscriptions) for name, group in clients.consumers.items()} == self.topics
        assert clients.memberships == sum(map(len, self.members()))
        for connection, _ in self.open:
            known = clients.client_of(connection)
            assert (known is not None) == any(connection in members for members in self.members())
            assert known is None or known.connection is connection

    def check_notices(
        self,
        before: dict[str, tuple[dict[Connection, str], frozenset[str]]],
        after: dict[str, tuple[dict[Connection, str], frozenset[str]]],
    ) -> None:
        """Each member of a changed group was notified once, and no other member was."""
        for connection, transport in self.open:
            told = [
                command.ext_fields["consumerGroup"]
                for command in decoded(b"".join(transport.writes))
                if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and not command.is_response
            ]
            assert sorted(told) == [
                group
                for group, (members, topics) in sorted(after.items())
                if connection in members and before.get(group) != (members, topics)
            ]

    async def end(self) -> None:
        for connection, _ in self.open:
            connection.connection_lost(None)
        self.endpoint.close()
        assert (self.broker.clients.consumers, self.broker.clients.producers) == ({}, {})
        assert self.broker.clients.memberships == 0
        await self.broker.writer.stop()


@settings(deadline=None, max_examples=60)
@given(st.lists(steps, max_size=25))
def test_random_client_actions_keep_tables_and_notifications_consistent(taken: Sequence[Step]) -> None:
    async def live() -> None:
        life = Life()
        for step in taken:
            await life.take(step)
        await life.end()

    asyncio.run(live())
