"""Brokers come and go: what a registration changes, what it does not, and when a broker is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.nameserver import NameServerLimits
from orbitmq.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.crc import body_crc
from support.nameserver_harness import QuietServer, RegisterRequest, Wire

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command

ACTING: dict[str, object] = {"enableActingMaster": True}
OLD: dict[str, object] = {"enableActingMaster": None}


def master(name: str = "broker-a", **more: object) -> RegisterRequest:
    return RegisterRequest(name, **more)  # type: ignore[arg-type]


def slave(name: str = "broker-a", broker_id: int = 1, **more: object) -> RegisterRequest:
    return RegisterRequest(name, broker_id, **more)  # type: ignore[arg-type]


def unregister(server: QuietServer, registration: RegisterRequest) -> Command:
    return server.ask(
        RequestCode.UNREGISTER_BROKER,
        brokerName=registration.name,
        brokerAddr=registration.address,
        clusterName=registration.cluster,
        brokerId=registration.id,
    )


# What a registration says


def test_a_registered_broker_serves_its_topics() -> None:
    server = QuietServer()
    assert server.register(master()).code == ResponseCode.SUCCESS
    assert server.addresses("TopicA") == {"broker-a": {0: "broker-a-0:10911"}}
    info = server.clusters()
    assert info.cluster_addr_table == {"cluster": ["broker-a"]}
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: "broker-a-0:10911"}


def test_a_slave_gets_the_address_of_its_master() -> None:
    server = QuietServer()
    assert server.register(slave()).ext_fields == {}
    assert server.register(master()).ext_fields == {}
    assert server.register(slave()).ext_fields == {
        "masterAddr": "broker-a-0:10911",
        "haServerAddr": "broker-a-0:10912",
    }


def test_the_order_configuration_is_returned_to_brokers() -> None:
    server = QuietServer()
    assert server.register(master()).body is None
    server.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="TopicA", value="broker-a:4")
    body = server.register(master()).body
    assert body is not None
    assert KVTable.decode(body).table == {"TopicA": "broker-a:4"}


def test_the_order_configuration_is_kept_from_brokers_if_so_configured() -> None:
    server = QuietServer(return_order_topic_config_to_broker=False)
    server.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="TopicA", value="broker-a:4")
    assert server.register(master()).body is None


def test_a_compressed_registration_is_accepted_whatever_its_header_says() -> None:
    for flag in (True, False):
        server = QuietServer()
        assert server.register(master(compress=True, fields={"compressed": flag})).code == ResponseCode.SUCCESS
        assert server.addresses("TopicB")


def test_a_broker_before_3_0_11_registers_a_bare_table_of_topics() -> None:
    server = QuietServer()
    server.register(master(filter_servers=["filter:1"]))
    body = TopicConfigSerializeWrapper(
        {"TopicA": TopicConfig("TopicA", 3, 5), "TopicC": TopicConfig("TopicC")}, DataVersion(9, 0, 9)
    ).encode()
    request = master(fields={"bodyCrc32": body_crc(body), **OLD}).request()
    request.body, request.version = body, 36
    assert server.ask_with(request).code == ResponseCode.SUCCESS
    route = server.route("TopicA")
    assert route is not None
    assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].write_queue_nums) == (3, 5)
    assert route.filter_server_table == {"broker-a-0:10911": ["filter:1"]}
    assert server.addresses("TopicC")


def test_a_broker_may_register_without_a_body() -> None:
    server = QuietServer()
    request = master(fields={"bodyCrc32": 0}).request()
    request.body = None
    assert server.ask_with(request).code == ResponseCode.SUCCESS
    assert "broker-a" in server.clusters().broker_addr_table


def test_filter_servers_are_part_of_routes_until_they_are_gone() -> None:
    server = QuietServer()
    server.register(master(filter_servers=["filter:1", "filter:2"]))
    route = server.route("TopicA")
    assert route is not None
    assert route.filter_server_table == {"broker-a-0:10911": ["filter:1", "filter:2"]}
    server.register(master())
    route = server.route("TopicA")
    assert route is not None
    assert route.filter_server_table == {}


# What is refused


def refused_registrations() -> dict[str, tuple[Command, str]]:
    registration = master(address="other:10911")
    wrong_json = registration.request()
    wrong_json.body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":'
    wrong_json.ext_fields["bodyCrc32"] = "0"
    negative = RegisterRequest(address="other:10911", topics=["TopicA", TopicConfig("Bad", -1, 8)])
    return {
        "wrong crc": (RegisterRequest(address="other:10911", fields={"bodyCrc32": 5}).request(), "crc32 not match"),
        "no json": (wrong_json, "JSON"),
        "no zlib": (RegisterRequest(address="other:10911", fields={"compressed": True}).request(), "zlib"),
        "no address": (RegisterRequest(address="other:10911", fields={"brokerAddr": None}).request(), "brokerAddr"),
        "no port": (RegisterRequest(address="other:10911", fields={"brokerAddr": "other"}).request(), "host:port"),
        "no id": (RegisterRequest(address="other:10911", fields={"brokerId": "first"}).request(), "brokerId"),
        "empty name": (RegisterRequest(address="other:10911", fields={"brokerName": ""}).request(), "brokerName"),
        "long zone": (RegisterRequest(address="other:10911", fields={"__ZONE_NAME": "z" * 2000}).request(), "zone"),
        "negative queues": (negative.request(), "Bad"),
    }


@pytest.mark.parametrize("what", refused_registrations())
def test_a_bad_registration_is_refused_as_a_whole(what: str) -> None:
    request, reason = refused_registrations()[what]
    server = QuietServer()
    server.register(master("broker-b"))
    server.register(slave())
    before = server.state()
    answer = server.ask_with(request)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert reason in (answer.remark or "")
    assert server.state() == before


def test_an_unknown_broker_must_not_register_a_single_topic() -> None:
    server = QuietServer()
    answer = server.register(master(topics=["TopicA"]))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    assert server.clusters().broker_addr_table == {}
    assert server.clusters().cluster_addr_table == {}


def test_a_known_broker_adds_and_changes_topics_one_at_a_time() -> None:
    server = QuietServer()
    server.register(master())
    assert server.register(master(topics=["TopicC"], counter=2)).code == ResponseCode.SUCCESS
    assert server.register(master(topics=[TopicConfig("TopicA", 2, 2)], counter=3)).code == ResponseCode.SUCCESS
    route = server.route("TopicA")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 2
    assert server.addresses("TopicB")
    assert server.addresses("TopicC")


def test_a_slave_cannot_begin_with_a_single_topic_either() -> None:
    server = QuietServer()
    server.register(master())
    assert server.register(slave(topics=["TopicA"])).code == ResponseCode.SYSTEM_ERROR
    assert server.addresses("TopicA") == {"broker-a": {0: "broker-a-0:10911"}}


# Versions


def test_the_same_version_changes_no_topic_that_is_there() -> None:
    server = QuietServer()
    server.register(master())
    server.register(master(topics=[TopicConfig("TopicA", 1, 1), "TopicB", "TopicC"]))
    route = server.route("TopicA")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 8
    assert server.addresses("TopicC"), "a topic that was not there is news in any version"


def test_a_new_version_changes_topics() -> None:
    server = QuietServer()
    server.register(master())
    server.register(master(topics=[TopicConfig("TopicA", 1, 1), "TopicB"], counter=2))
    route = server.route("TopicA")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 1


def test_topics_that_a_broker_no_longer_names_stay() -> None:
    server = QuietServer()
    server.register(master())
    server.register(master(topics=["TopicA", "TopicC"], counter=2))
    assert server.addresses("TopicB")


def test_topics_that_a_broker_no_longer_names_go_if_so_configured() -> None:
    server = QuietServer(delete_topic_with_broker_registration=True)
    server.register(master())
    server.register(master(topics=["TopicA"], counter=2))
    assert server.addresses("TopicB"), "a single topic is news about this one only"
    server.register(master(topics=["TopicA", "TopicC"], counter=2))
    assert server.route("TopicB") is None


def test_a_broker_asks_whether_its_topics_are_news() -> None:
    server = QuietServer()

    def ask(counter: int) -> Command:
        return server.ask(
            RequestCode.QUERY_DATA_VERSION,
            DataVersion(counter, 0, 1_700_000_000_000).encode(),
            brokerName="broker-a",
            brokerAddr="broker-a-0:10911",
            clusterName="cluster",
            brokerId=0,
        )

    unknown = ask(1)
    assert (unknown.ext_fields, unknown.body) == ({"changed": "true"}, None)
    server.register(master())
    same = ask(1)
    assert same.ext_fields == {"changed": "false"}
    assert DataVersion.decode(same.body or b"") == DataVersion(1, 0, 1_700_000_000_000)
    assert ask(2).ext_fields == {"changed": "true"}


# Roles


def test_an_older_claim_to_an_id_is_passed_over_and_its_sender_forgotten() -> None:
    server = QuietServer()
    server.register(master(state=5))
    impostor = slave(address="impostor:10911")
    server.register(impostor)
    assert server.register(master(address="impostor:10911", state=4)).code == ResponseCode.SUCCESS
    assert server.addresses("TopicA") == {"broker-a": {0: "broker-a-0:10911"}}


def test_a_newer_claim_to_an_id_takes_it() -> None:
    server = QuietServer()
    server.register(master(state=4))
    server.register(master(address="successor:10911", state=5))
    assert server.addresses("TopicA") == {"broker-a": {0: "successor:10911"}}
    server.wait(1_000_000)
    assert server.clusters().broker_addr_table == {}


def test_a_slave_that_becomes_master_leaves_its_old_id() -> None:
    server = QuietServer()
    server.register(master())
    server.register(slave())
    unregister(server, master())
    server.register(master(address="broker-a-1:10911", counter=2))
    assert server.addresses("TopicA") == {"broker-a": {0: "broker-a-1:10911"}}


def test_a_slave_says_nothing_about_topics_while_there_is_a_master() -> None:
    server = QuietServer()
    server.register(master())
    server.register(slave(topics=["TopicA", "TopicC"]))
    assert server.route("TopicC") is None


def test_the_first_slave_without_a_master_brings_its_topics() -> None:
    server = QuietServer()
    server.register(slave(topics=["TopicA", "TopicC"]))
    assert server.perms("TopicC") == {"broker-a": 6}
    server.register(slave(broker_id=2, topics=["TopicA", "TopicD"]))
    assert server.route("TopicD") is None


def test_the_first_slave_that_may_act_as_master_brings_them_to_be_read_only() -> None:
    server = QuietServer()
    server.register(slave(fields=ACTING))
    assert server.perms("TopicA") == {"broker-a": 4}


def test_a_slave_before_5_0_never_brings_topics() -> None:
    server = QuietServer()
    server.register(slave(fields=OLD))
    assert server.route("TopicA") is None


def test_a_broker_with_another_name_is_not_the_old_one_any_more() -> None:
    server = QuietServer()
    server.register(master(address="host:10911"))
    server.register(master("broker-b", address="host:10911"))
    assert server.addresses("TopicA") == {"broker-b": {0: "host:10911"}}


# Going


def test_an_unregistered_broker_is_gone_with_its_topics_and_its_cluster() -> None:
    server = QuietServer()
    server.register(master())
    server.register(master("broker-b", cluster="other", topics=["TopicA", "TopicC"]))
    assert unregister(server, master()).code == ResponseCode.SUCCESS
    assert server.addresses("TopicA") == {"broker-b": {0: "broker-b-0:10911"}}
    assert server.route("TopicB") is None
    assert server.clusters().cluster_addr_table == {"other": ["broker-b"]}


def test_what_is_not_registered_can_be_unregistered() -> None:
    server = QuietServer()
    server.register(master())
    assert unregister(server, master("broker-x")).code == ResponseCode.SUCCESS
    assert unregister(server, master("broker-x", address="broker-a-0:10911")).code == ResponseCode.SUCCESS
    assert server.addresses("TopicA")


def test_without_its_master_a_group_keeps_its_permissions() -> None:
    server = QuietServer()
    server.register(master())
    server.register(slave())
    unregister(server, master())
    assert server.addresses("TopicA") == {"broker-a": {1: "broker-a-1:10911"}}
    assert server.perms("TopicA") == {"broker-a": 6}


def test_without_its_master_a_group_of_acting_masters_is_read_only() -> None:
    server = QuietServer()
    server.register(master(fields=ACTING))
    server.register(slave(fields=ACTING))
    unregister(server, master())
    assert server.perms("TopicA") == {"broker-a": 4}


def test_a_silent_broker_is_forgotten_after_two_minutes() -> None:
    server = QuietServer()
    server.register(master())
    server.wait(120_000)
    assert server.addresses("TopicA")
    server.wait(1)
    assert server.route("TopicA") is None


def test_a_broker_says_how_long_it_may_be_silent() -> None:
    server = QuietServer()
    server.register(master(fields={"heartbeatTimeoutMillis": 10_000}))
    server.wait(10_001)
    assert server.route("TopicA") is None


@pytest.mark.parametrize("code", [RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION])
def test_a_heartbeat_keeps_a_broker_but_makes_none(code: RequestCode) -> None:
    server = QuietServer()
    identity = {"brokerName": "broker-a", "brokerAddr": "broker-a-0:10911", "clusterName": "cluster", "brokerId": 0}
    assert server.ask(code, **identity).code == ResponseCode.SUCCESS
    assert server.clusters().broker_addr_table == {}
    server.register(master())
    for _ in range(3):
        server.clock.advance(100_000)
        assert server.ask(code, **identity).code == ResponseCode.SUCCESS
        server.wait(0)
    assert server.addresses("TopicA")


def test_brokers_go_with_their_connection() -> None:
    server = QuietServer()
    first, second = Wire(), Wire()
    server.register(master(), first)
    server.register(slave(), first)
    server.register(master("broker-b"), second)
    server.close(first)
    assert server.addresses("TopicA") == {"broker-b": {0: "broker-b-0:10911"}}


def test_a_broker_that_came_back_does_not_go_with_its_old_connection() -> None:
    server = QuietServer()
    first, second = Wire(), Wire()
    server.register(master(), first)
    server.register(master(), second)
    server.close(first)
    assert server.addresses("TopicA")
    server.close(second)
    assert server.route("TopicA") is None


# Static topics


def static(name: str, counter: int = 1) -> RegisterRequest:
    info = TopicQueueMappingInfo("Static", total_queues=4, bname=name, epoch=1, curr_id_map={0: 0, 1: 1})
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table={"Static": TopicConfig("Static", 2, 2), "TopicA": TopicConfig("TopicA")},
        data_version=DataVersion(counter, 0, 1),
        topic_queue_mapping_info_map={"Static": info},
    )
    return RegisterRequest(name, body=RegisterBrokerBody(wrapper))


def test_the_route_of_a_static_topic_carries_its_mapping() -> None:
    server = QuietServer()
    server.register(static("broker-a"))
    server.register(static("broker-b"))
    route = server.route("Static")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is not None
    assert route.topic_queue_mapping_by_broker["broker-b"].curr_id_map == {0: 0, 1: 1}
    plain = server.route("TopicA")
    assert plain is not None
    assert plain.topic_queue_mapping_by_broker is None


def test_the_queues_of_a_static_topic_outlive_their_broker() -> None:
    server = QuietServer()
    server.register(static("broker-a"))
    server.register(static("broker-b"))
    unregister(server, static("broker-a"))
    route = server.route("Static")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is not None
    assert set(route.topic_queue_mapping_by_broker) == {"broker-a", "broker-b"}


def test_a_deleted_static_topic_comes_back_with_its_mapping() -> None:
    server = QuietServer()
    server.register(static("broker-a"))
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="Static")
    assert server.route("Static") is None
    server.register(static("broker-a"))
    route = server.route("Static")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is not None


# Limits


def test_brokers_over_the_limit_are_refused() -> None:
    server = QuietServer(NameServerLimits(brokers=2))
    server.register(master())
    server.register(slave())
    answer = server.register(master("broker-b"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "2 brokers" in (answer.remark or "")
    assert server.register(slave()).code == ResponseCode.SUCCESS
    assert server.register(master(address="successor:10911")).code == ResponseCode.SUCCESS
    assert len(server.table.brokers) == 2


def test_topics_over_the_limit_are_refused() -> None:
    server = QuietServer(NameServerLimits(topics=3))
    server.register(master())
    assert server.register(master(topics=["TopicA", "TopicB", "TopicC"])).code == ResponseCode.SUCCESS
    answer = server.register(master("broker-b", topics=["TopicA", "TopicD"]))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "3" in (answer.remark or "")
    assert "broker-b" not in server.clusters().broker_addr_table


def test_static_topics_over_the_limit_are_refused() -> None:
    server = QuietServer(NameServerLimits(topics=2))
    server.register(static("broker-a"))
    server.register(static("broker-b"))
    assert server.register(static("broker-c")).code == ResponseCode.SYSTEM_ERROR
    assert server.register(static("broker-a", counter=2)).code == ResponseCode.SUCCESS


def test_filter_servers_over_the_limit_are_refused() -> None:
    server = QuietServer(NameServerLimits(filter_servers=1))
    assert server.register(master(filter_servers=["f:1", "f:2"])).code == ResponseCode.SYSTEM_ERROR


def test_names_over_the_limit_are_refused() -> None:
    server = QuietServer()
    for registration in (
        master("n" * 2000),
        master(topics=["TopicA", "t" * 2000]),
        master(cluster="c" * 2000),
        master(filter_servers=["f" * 2000]),
    ):
        assert server.register(registration).code == ResponseCode.SYSTEM_ERROR
    assert server.table.brokers == {}
