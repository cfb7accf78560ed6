"""Those who look for routes get them in the form that they can read, and never an old one."""

from __future__ import annotations

import itertools

import pytest

from orbitmq.protocol.bodies import TopicConfig, TopicRouteData
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.message.flags import RESPONSE
from orbitmq.remoting.processor import success_with
from support.nameserver_harness import QuietServer, RegisterRequest

ACTING: dict[str, object] = {"enableActingMaster": True}
MEMBERS = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"


def body_for(server: QuietServer, version: int, **fields: str) -> bytes:
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 5, ext_fields={"topic": "TopicA", **fields})
    request.version = version
    body = server.ask_with(request).body
    assert body is not None
    return body


def test_new_clients_get_standard_json_and_old_ones_unquoted_broker_ids() -> None:
    server = QuietServer()
    server.register(RegisterRequest())
    for _ in range(2):
        assert b'{"0":"broker-a-0:10911"}' in body_for(server, 401)
        assert b'{0:"broker-a-0:10911"}' in body_for(server, 400)
        assert b'{"0":"broker-a-0:10911"}' in body_for(server, 121, acceptStandardJsonOnly="true")
        assert loads(body_for(server, 400)) != loads(body_for(server, 401))
        assert TopicRouteData.decode(body_for(server, 400)) == TopicRouteData.decode(body_for(server, 513))


@pytest.mark.parametrize("serialize_type", SerializeType)
@pytest.mark.parametrize("opaque", [0, 1, 4711, 2**31 - 1, -1])
def test_the_ready_made_answer_is_that_of_a_command(serialize_type: SerializeType, opaque: int) -> None:
    for body in (b"{}", b"x" * 5000):
        command = Command(0, opaque, RESPONSE, body=body, language=LanguageCode.JAVA, serialize_type=serialize_type)
        assert success_with(body, opaque, serialize_type) == command.encode()


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_an_answer_has_the_kind_of_header_that_its_request_had(serialize_type: SerializeType) -> None:
    server = QuietServer()
    server.register(RegisterRequest())
    for topic in ("TopicA", "Nowhere"):
        request = Command(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, 9, ext_fields={"topic": topic}, serialize_type=serialize_type
        )
        assert server.ask_with(request).serialize_type == serialize_type


def test_a_topic_that_is_nowhere_is_not_found() -> None:
    server = QuietServer()
    answer = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Nowhere")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith("No topic route info in name server for the topic: Nowhere\nSee ")
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC).code == ResponseCode.TOPIC_NOT_EXIST


def test_unknown_topics_are_not_cached() -> None:
    server = QuietServer()
    server.register(RegisterRequest())
    for number in range(50):
        server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=f"Nowhere{number}")
    server.route("TopicA")
    assert list(server.server._answers._standard) == ["TopicA"]


def test_a_route_is_encoded_once_until_it_changes() -> None:
    server = QuietServer()
    server.register(RegisterRequest())
    server.register(RegisterRequest("broker-b"))
    encoded = body_for(server, 513)
    kept = server.server._answers._standard["TopicA"]
    server.register(RegisterRequest())
    server.register(RegisterRequest(topics=["TopicB"], counter=2))
    server.clock.advance(5)
    assert server.server._answers._standard["TopicA"] is kept, "nothing of this has to do with the topic"
    server.register(RegisterRequest(topics=[TopicConfig("TopicA", 1, 1)], counter=3))
    assert body_for(server, 513) != encoded


def test_every_change_of_brokers_shows_in_routes_at_once() -> None:
    server = QuietServer()
    seen = []
    for change in (
        lambda: server.register(RegisterRequest()),
        lambda: server.register(RegisterRequest("broker-b")),
        lambda: server.register(RegisterRequest(id=1)),
        lambda: server.register(RegisterRequest(filter_servers=["f:1"])),
        lambda: server.register(RegisterRequest(filter_servers=["f:1"], fields={"__ZONE_NAME": "z1"})),
        lambda: server.register(RegisterRequest(filter_servers=["f:1"], fields={"__ZONE_NAME": "z1", **ACTING})),
        lambda: server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-b"),
        lambda: server.wait(1_000_000),
    ):
        change()
        seen.append(server.route("TopicA"))
    assert all(one != other for one, other in itertools.pairwise(seen))
    assert seen[-1] is None


# Order


def test_ordered_topics_carry_their_order_if_so_configured() -> None:
    server = QuietServer(order_message_enable=True)
    server.register(RegisterRequest())
    assert server.route("TopicA") == server.route("TopicA")
    server.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="TopicA", value="broker-a:4")
    route = server.route("TopicA")
    assert route is not None
    assert route.order_topic_conf == "broker-a:4"
    server.ask(RequestCode.DELETE_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="TopicA")
    route = server.route("TopicA")
    assert route is not None
    assert route.order_topic_conf is None


def test_routes_carry_no_order_by_default() -> None:
    server = QuietServer()
    server.register(RegisterRequest())
    server.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="TopicA", value="broker-a:4")
    route = server.route("TopicA")
    assert route is not None
    assert route.order_topic_conf is None
    server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true\n")
    route = server.route("TopicA")
    assert route is not None
    assert route.order_topic_conf == "broker-a:4"


# Zones


def zoned(zone: str | None, name: str, broker_id: int = 0) -> RegisterRequest:
    return RegisterRequest(name, broker_id, fields={"__ZONE_NAME": zone}, filter_servers=[f"{name}-filter:1"])


def test_who_asks_from_a_zone_sees_its_brokers_and_those_without_a_master() -> None:
    server = QuietServer()
    server.register(zoned("Z1", "broker-a"))
    server.register(zoned("z2", "broker-b"))
    server.register(zoned(None, "broker-c"))
    server.register(zoned("z2", "broker-d", 1))
    for version, quoted in ((513, b'{"0":"broker-a-0:10911"}'), (300, b'{0:"broker-a-0:10911"}')):
        body = body_for(server, version, __ZONE_MODE="true", __ZONE_NAME="z1")
        route = TopicRouteData.decode(body)
        assert {data.broker_name for data in route.broker_datas} == {"broker-a", "broker-d"}
        assert {data.broker_name for data in route.queue_datas} == {"broker-a", "broker-d"}
        assert set(route.filter_server_table) == {"broker-a-0:10911", "broker-d-1:10911"}
        assert quoted in body


def test_a_zone_needs_both_its_mode_and_its_name() -> None:
    server = QuietServer()
    server.register(zoned("z1", "broker-a"))
    server.register(zoned("z2", "broker-b"))
    everything = TopicRouteData.decode(body_for(server, 513))
    assert len(everything.broker_datas) == 2
    for fields in ({"__ZONE_NAME": "z1"}, {"__ZONE_MODE": "true", "__ZONE_NAME": " "}, {"__ZONE_MODE": "true"}):
        assert TopicRouteData.decode(body_for(server, 513, **fields)) == everything


def test_a_topic_that_is_nowhere_is_not_found_in_a_zone_either() -> None:
    answer = QuietServer().ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Nowhere", __ZONE_MODE="true", __ZONE_NAME="z"
    )
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


# Acting masters


def test_the_smallest_slave_stands_in_for_a_lost_master() -> None:
    server = QuietServer(support_acting_master=True)
    for registration in (
        RegisterRequest(fields=ACTING, topics=["TopicA", MEMBERS]),
        RegisterRequest(id=2, fields=ACTING),
        RegisterRequest(id=3, fields=ACTING),
    ):
        server.register(registration)
    assert server.addresses("TopicA")["broker-a"][0] == "broker-a-0:10911"
    server.ask(
        RequestCode.UNREGISTER_BROKER,
        brokerName="broker-a",
        brokerAddr="broker-a-0:10911",
        clusterName="cluster",
        brokerId=0,
    )
    assert server.addresses("TopicA") == {"broker-a": {0: "broker-a-2:10911", 3: "broker-a-3:10911"}}
    assert server.perms("TopicA") == {"broker-a": 4}
    assert server.addresses(MEMBERS) == {"broker-a": {2: "broker-a-2:10911", 3: "broker-a-3:10911"}}
    info = server.clusters().broker_addr_table["broker-a"]
    assert info.broker_addrs == {2: "broker-a-2:10911", 3: "broker-a-3:10911"}


def test_no_slave_acts_as_master_if_unsupported_or_the_topic_is_writable() -> None:
    unsupported = QuietServer()
    unsupported.register(RegisterRequest(id=1, fields=ACTING))
    assert unsupported.addresses("TopicA") == {"broker-a": {1: "broker-a-1:10911"}}
    supported = QuietServer(support_acting_master=True)
    supported.register(RegisterRequest(id=1))
    assert supported.addresses("TopicA") == {"broker-a": {1: "broker-a-1:10911"}}
    supported.register(RegisterRequest(id=1, fields=ACTING))
    supported.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert supported.addresses("TopicA") == {"broker-a": {1: "broker-a-1:10911"}}


# Waiting for brokers


def test_a_name_server_may_wait_for_brokers_before_it_answers() -> None:
    server = QuietServer(need_wait_for_service=True, wait_seconds_for_service=45)
    server.server._started_ms = server.clock.now_ms()
    server.register(RegisterRequest())
    answer = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TopicA")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    server.clock.advance(45_000)
    assert server.addresses("TopicA")
