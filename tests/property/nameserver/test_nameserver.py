"""Whatever brokers do in whatever order, the routing tables say the same as a model too simple to be wrong."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.nameserver.limits import NameServerLimits
from orbitmq.nameserver.registration import decode_registration
from orbitmq.nameserver.route_queries import cluster_info, route_of, source_of
from orbitmq.protocol.bodies import (
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import dumps
from support.nameserver_harness import QuietServer, RegisterRequest, Wire, as_text

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ["broker-a", "broker-b"]
CLUSTERS = ["c1", "c2"]
TOPICS = ["T1", "T2", "T3"]
ADDRESSES = ["h1:1", "h2:1", "h3:1"]
WRITE = 2


@dataclasses.dataclass(slots=True)
class Known:
    """A broker in the model."""

    registration: RegisterRequest
    wire: Wire
    last_seen_ms: int
    timeout_ms: int

    def is_at(self, cluster: str, address: str) -> bool:
        return (self.registration.cluster, self.registration.address) == (cluster, address)


class Model:
    """Brokers in a list, queues in one table; everything else is looked up on request."""

    def __init__(self) -> None:
        self.brokers: list[Known] = []
        self.cluster_of: dict[str, str] = {}
        self.acting: dict[str, bool] = {}
        self.names: set[tuple[str, str]] = set()
        self.queues: dict[tuple[str, str], tuple[int, int]] = {}
        """Queue count and permission, per topic and broker name."""

    def group(self, name: str) -> dict[int, Known]:
        return {broker.registration.id: broker for broker in self.brokers if broker.registration.name == name}

    def register(
        self, registration: RegisterRequest, wire: Wire, now: int, timeout: int, acting: bool | None
    ) -> bool:
        """True if it was accepted, or ignored as Apache's name server ignores some; False is a refusal."""
        group = self.group(registration.name)
        holder = group.get(registration.id)
        known = next(
            (broker for broker in self.brokers if broker.is_at(registration.cluster, registration.address)), None
        )
        if (
            holder is not None
            and holder.registration.address != registration.address
            and holder.registration.cluster == registration.cluster
            and holder.registration.state > registration.state
        ):
            if known is not None:
                self.remove(known)
            return True
        topics = [topic for topic in registration.topics if isinstance(topic, TopicConfig)]
        if holder is None and len(topics) == 1:
            return False
        if known is not None and known.registration.name != registration.name:
            self.remove(known)
            known = None
        is_news = (
            holder is None
            or known is None
            or (known.registration.counter, known.registration.state) != (registration.counter, registration.state)
        )
        self.brokers = [broker for broker in self.brokers if broker is not known and broker is not holder]
        self.brokers.append(Known(registration, wire, now, timeout))
        self.names.add((registration.cluster, registration.name))
        self.cluster_of.setdefault(registration.name, registration.cluster)
        self.acting[registration.name] = bool(acting)
        if registration.id == 0 or (acting is not None and registration.id == min(self.group(registration.name))):
            for topic in topics:
                if is_news or (topic.topic_name, registration.name) not in self.queues:
                    perm = topic.perm & ~WRITE if registration.id and acting else topic.perm
                    self.queues[topic.topic_name, registration.name] = topic.read_queue_nums, perm
        return True

    def remove(self, broker: Known) -> None:
        name = broker.registration.name
        self.brokers = [one for one in self.brokers if one is not broker]
        ids = self.group(name)
        if not ids:
            self.queues = {key: value for key, value in self.queues.items() if key[1] != name}
            self.names = {one for one in self.names if one[1] != name}
            del self.cluster_of[name], self.acting[name]
        elif self.acting[name] and min(ids) > 0:
            self.change_perms(name, lambda perm: perm & ~WRITE)

    def change_perms(self, name: str, changed: Callable[[int], int]) -> int:
        mine = [key for key in self.queues if key[1] == name]
        for key in mine:
            count, perm = self.queues[key]
            self.queues[key] = count, changed(perm)
        return len(mine)


configs = st.builds(
    TopicConfig,
    topic_name=st.sampled_from(TOPICS),
    read_queue_nums=st.integers(1, 4),
    perm=st.sampled_from([2, 4, 6, 7]),
)
some_topics = st.lists(configs, max_size=3, unique_by=lambda config: config.topic_name)


class RoutingTables(RuleBasedStateMachine):
    """The name server beside its model."""

    @initialize()
    def start(self) -> None:
        self.server = QuietServer()
        self.model = Model()
        self.wires = [Wire(), Wire()]

    @rule(
        name=st.sampled_from(NAMES),
        broker_id=st.integers(0, 2),
        address=st.sampled_from(ADDRESSES),
        cluster=st.sampled_from(CLUSTERS),
        topics=some_topics,
        counter=st.integers(1, 2),
        state=st.integers(0, 1),
        acting=st.sampled_from([None, False, True]),
        zone=st.sampled_from([None, "z1"]),
        timeout=st.sampled_from([100, 1000]),
        wire=st.integers(0, 1),
        compress=st.booleans(),
    )
    def register(
        self,
        name: str,
        broker_id: int,
        address: str,
        cluster: str,
        topics: list[TopicConfig],
        counter: int,
        state: int,
        acting: bool | None,
        zone: str | None,
        timeout: int,
        wire: int,
        compress: bool,
    ) -> None:
        fields: dict[str, object] = {
            "enableActingMaster": acting,
            "heartbeatTimeoutMillis": timeout,
            "__ZONE_NAME": zone,
        }
        registration = RegisterRequest(
            name, broker_id, address, cluster, topics, counter, state, fields, compress=compress
        )
        self._register(registration, self.wires[wire], timeout, acting)

    @rule(which=st.integers(0, 5), topics=some_topics, is_news=st.booleans())
    def register_again(self, which: int, topics: list[TopicConfig], is_news: bool) -> None:
        if self.model.brokers:
            known = self.model.brokers[which % len(self.model.brokers)]
            registration = dataclasses.replace(
                known.registration, topics=topics, counter=known.registration.counter + is_news
            )
            acting = registration.fields["enableActingMaster"]
            self._register(registration, known.wire, known.timeout_ms, None if acting is None else bool(acting))

    def _register(self, registration: RegisterRequest, wire: Wire, timeout: int, acting: bool | None) -> None:
        before = self.server.state()
        answer = self.server.register(registration, wire)
        is_accepted = self.model.register(registration, wire, self.server.clock.now_ms(), timeout, acting)
        assert (answer.code == ResponseCode.SUCCESS) == is_accepted
        if not is_accepted:
            assert self.server.state() == before
        if answer.ext_fields:
            assert answer.ext_fields["masterAddr"] == self.model.group(registration.name)[0].registration.address

    @rule(cluster=st.sampled_from(CLUSTERS), address=st.sampled_from(ADDRESSES), name=st.sampled_from(NAMES))
    def unregister(self, cluster: str, address: str, name: str) -> None:
        self.server.ask(
            RequestCode.UNREGISTER_BROKER, clusterName=cluster, brokerAddr=address, brokerName=name, brokerId=0
        )
        for broker in self.model.brokers:
            if broker.is_at(cluster, address) and broker.registration.name == name:
                self.model.remove(broker)

    @rule(wire=st.integers(0, 1))
    def close(self, wire: int) -> None:
        self.server.close(self.wires[wire])
        for broker in self.model.brokers:
            if broker.wire is self.wires[wire]:
                self.model.remove(broker)
        self.wires[wire] = Wire()

    @rule(cluster=st.sampled_from(CLUSTERS), address=st.sampled_from(ADDRESSES), ms=st.integers(0, 150))
    def beat_and_wait(self, cluster: str, address: str, ms: int) -> None:
        fields = {"clusterName": cluster, "brokerAddr": address, "brokerName": "any"}
        assert self.server.ask(RequestCode.BROKER_HEARTBEAT, **fields).code == ResponseCode.SUCCESS
        for broker in self.model.brokers:
            if broker.is_at(cluster, address):
                broker.last_seen_ms = self.server.clock.now_ms()
        self.server.wait(ms)
        now = self.server.clock.now_ms()
        for broker in self.model.brokers:
            if broker.last_seen_ms + broker.timeout_ms < now:
                self.model.remove(broker)

    @rule(name=st.sampled_from(NAMES), wipe=st.booleans())
    def change_permission(self, name: str, wipe: bool) -> None:
        if wipe:
            answer = self.server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName=name)
            count = self.model.change_perms(name, lambda perm: perm & ~WRITE)
            assert answer.ext_fields == {"wipeTopicCount": str(count)}
        else:
            answer = self.server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName=name)
            count = self.model.change_perms(name, lambda _: 6)
            assert answer.ext_fields == {"addTopicCount": str(count)}

    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, *CLUSTERS]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic, clusterName=cluster)
        for name in NAMES:
            if cluster is None or (cluster, name) in self.model.names:
                self.model.queues.pop((topic, name), None)

    @rule(topic=st.sampled_from(TOPICS), name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def register_topic(self, topic: str, name: str, count: int) -> None:
        route = TopicRouteData(queue_datas=[QueueData(name, count, count, 6)])
        self.server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, route.encode(), topic=topic)
        if self.model.group(name):
            self.model.queues[topic, name] = count, 6

    @invariant()
    def brokers_are_those_of_the_model(self) -> None:
        info = self.server.clusters()
        assert {name: data.broker_addrs for name, data in info.broker_addr_table.items()} == {
            name: {number: broker.registration.address for number, broker in self.model.group(name).items()}
            for name in self.model.cluster_of
        }
        assert {name: data.cluster for name, data in info.broker_addr_table.items()} == self.model.cluster_of
        assert {(cluster, name) for cluster, names in info.cluster_addr_table.items() for name in names} == (
            self.model.names
        )
        table = self.server.table
        assert cluster_info(table.groups, table.clusters) == info, "what is handed out is not old"

    @invariant()
    def routes_are_those_of_the_model(self) -> None:
        for topic in TOPICS:
            expected = {name: value for (one, name), value in self.model.queues.items() if one == topic}
            route = self.server.route(topic)
            source = source_of(self.server.table, topic)
            assert route == (None if source is None else route_of(source)), "what is handed out is not old"
            if route is None:
                assert expected == {}
                continue
            assert {data.broker_name: (data.read_queue_nums, data.perm) for data in route.queue_datas} == expected
            assert [data.broker_name for data in route.broker_datas] == sorted(expected)

    @invariant()
    def every_broker_belongs_to_a_group_and_a_connection(self) -> None:
        table = self.server.table
        members = [broker for group in table.groups.values() for broker in group.members.values()]
        assert sorted(map(id, members)) == sorted(map(id, table.brokers.values()))
        assert all(group.members for group in table.groups.values())
        assert all(names <= table.groups.keys() and names for names in table.clusters.values())
        assert all(on and on.keys() <= table.groups.keys() for on in table.topics.values())
        assert all(table._by_connection.values())
        by_wire = {(wire, key) for wire, keys in table._by_connection.items() for key in keys}
        assert by_wire == {(broker.connection, broker.key) for broker in members}


TestRoutingTables = RoutingTables.TestCase
TestRoutingTables.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


# Registrations, read fast and read in general

numbers = st.one_of(st.integers(-1, 20), st.integers(), st.sampled_from(["7", "", "x", None, True, 2.0]))
topic_values = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "topicName": st.one_of(st.sampled_from(["T1", "", None]), st.text(max_size=5), st.integers()),
            "readQueueNums": numbers,
            "writeQueueNums": numbers,
            "perm": numbers,
            "topicSysFlag": numbers,
            "order": st.booleans(),
            "unknown": st.integers(),
        },
    ),
    st.integers(),
    st.lists(st.integers(), max_size=2),
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "filterServerList": st.one_of(st.none(), st.lists(st.text(min_size=1, max_size=3), max_size=2)),
        "topicConfigSerializeWrapper": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "topicConfigTable": st.one_of(
                        st.none(), st.integers(), st.dictionaries(st.text(min_size=1, max_size=4), topic_values)
                    ),
                    "dataVersion": st.one_of(st.none(), st.fixed_dictionaries({"counter": st.integers(0, 9)})),
                },
            ),
        ),
    },
)


@given(documents)
def test_a_registration_read_fast_is_what_the_general_reader_says(document: dict[str, Any]) -> None:
    body = dumps(document)
    request = RegisterRequest(fields={"bodyCrc32": 0}).request()
    request.body = body
    try:
        expected: dict[str, tuple[int, ...]] | None = {}
        wrapper = RegisterBrokerBody.decode(body).topic_config_serialize_wrapper
        for key, config in wrapper.topic_config_table.items():
            queues = config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag
            if expected is None or any(not 0 <= number < 2**31 for number in queues):
                expected = None
                break
            expected[config.topic_name or key] = queues
    except ProtocolError:
        expected = None
    try:
        found = decode_registration(request, NameServerLimits())
    except ProtocolError:
        assert expected is None
    else:
        assert found.topics == expected


# Frames

CODES = sorted(QuietServer().server.handlers)
likely = {
    "brokerName": st.sampled_from([*NAMES, ""]),
    "clusterName": st.sampled_from([*CLUSTERS, ""]),
    "cluster": st.sampled_from(CLUSTERS),
    "brokerAddr": st.sampled_from([*ADDRESSES, "nowhere", ":", "h:99999"]),
    "brokerId": st.sampled_from(["0", "1", "-1", "x", "9223372036854775808"]),
    "haServerAddr": st.sampled_from(["ha:1", ""]),
    "topic": st.sampled_from([*TOPICS, ""]),
    "namespace": st.sampled_from(["ORDER_TOPIC_CONFIG", "NS", ""]),
    "bodyCrc32": st.sampled_from(["0", "5", "x"]),
    "compressed": st.sampled_from(["true", "false", "perhaps"]),
    "heartbeatTimeoutMillis": st.sampled_from(["0", "-5", "100", "x"]),
    "__ZONE_MODE": st.sampled_from(["true", "false"]),
    "__ZONE_NAME": st.sampled_from(["z1", " "]),
}
table = {name: TopicConfig(name, 4, 4) for name in TOPICS}
bodies = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.just(RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(table)).encode()),
    st.just(RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(table)).encode_compressed()),
    st.just(TopicRouteData(queue_datas=[QueueData("broker-a", 1, 1, 6)]).encode()),
    st.sampled_from([b"{}", b"[]", b"null", b'{"counter":1}', b'{"counter":"x"}', b"\x78\x9c\x00"]),
    st.sampled_from(
        [b"listenPort=1\n", b"kvConfigPath=/x\n", b"listenPort=x\n", b"a=\\u00", b"enableTopicList=false"]
    ),
    documents.map(dumps),
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    code = draw(st.sampled_from(CODES))
    names = [field.wire_name for field in REQUEST_FIELDS.get(code, ())] + ["__ZONE_MODE", "__ZONE_NAME"]
    fields = {name: draw(likely.get(name, st.text(max_size=4))) for name in names if draw(st.integers(0, 9)) < 8}
    body = draw(bodies)
    version = draw(st.sampled_from([0, 36, 37, 400, 401, 513]))
    return Command(code, 1, ext_fields=as_text(dict(fields)), body=body, version=version).encode()


@given(st.lists(frames(), max_size=8))
@settings(max_examples=300, deadline=None)
def test_no_request_fails_and_none_that_is_refused_changes_anything(requests: list[bytes]) -> None:
    server = QuietServer()
    server.register(RegisterRequest(cluster="c1", topics=TOPICS))
    for request in requests:
        before = server.state()
        (answer,) = server.send(request)
        assert answer.is_response
        if answer.code != ResponseCode.SUCCESS:
            assert server.state() == before, answer.remark
            assert answer.remark


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_no_damaged_registration_fails_or_is_taken_in_part(data: st.DataObject) -> None:
    body = bytearray(RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(table)).encode())
    if data.draw(st.booleans()):
        body = bytearray(RegisterBrokerBody(TopicConfigAndMappingSerializeWrapper(table)).encode_compressed())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    server = QuietServer()
    request = RegisterRequest(fields={"bodyCrc32": 0}).request()
    request.body = bytes(body)
    before = server.state()
    answer = server.ask_with(request)
    if answer.code == ResponseCode.SUCCESS:
        assert "broker-a" in server.table.groups
    else:
        assert server.state() == before
