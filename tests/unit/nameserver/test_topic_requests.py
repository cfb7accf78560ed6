"""Lists of topics, permissions to write, and topics that are registered or deleted one by one."""

from __future__ import annotations

import pytest

from orbitmq.nameserver import NameServerLimits
from orbitmq.protocol.bodies import (
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicConfig,
    TopicList,
    TopicRouteData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.nameserver_harness import QuietServer, RegisterRequest

UNIT, UNIT_SUBSCRIBED = 1, 2


def listed(server: QuietServer, code: RequestCode, **fields: object) -> TopicList:
    answer = server.ask(code, **fields)
    assert answer.code == ResponseCode.SUCCESS
    return TopicList.decode(answer.body or b"")


def two_clusters() -> QuietServer:
    server = QuietServer()
    server.register(RegisterRequest("broker-a", cluster="c1", topics=["TopicA", "TopicB"]))
    server.register(RegisterRequest("broker-b", cluster="c2", topics=["TopicB", "TopicC"]))
    return server


def test_all_topics_are_listed() -> None:
    topics = listed(two_clusters(), RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert topics.topic_list == ["TopicA", "TopicB", "TopicC"]


def test_the_topics_of_a_cluster_are_listed() -> None:
    server = two_clusters()
    assert listed(server, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c2").topic_list == ["TopicB", "TopicC"]
    assert listed(server, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="c3").topic_list == []


def test_the_names_of_clusters_and_brokers_are_system_topics() -> None:
    system = listed(two_clusters(), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert system == TopicList(["broker-a", "broker-b", "c1", "c2"], "broker-a-0:10911")
    assert listed(QuietServer(), RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == TopicList()


def test_topics_of_units_are_listed_by_their_flags() -> None:
    server = QuietServer()
    flags = {"Plain": 0, "Unit": UNIT, "Subscribed": UNIT_SUBSCRIBED, "Both": UNIT | UNIT_SUBSCRIBED}
    server.register(
        RegisterRequest(topics=[TopicConfig(topic, topic_sys_flag=flag) for topic, flag in flags.items()])
    )
    assert listed(server, RequestCode.GET_UNIT_TOPIC_LIST).topic_list == ["Both", "Unit"]
    assert listed(server, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST).topic_list == ["Both", "Subscribed"]
    assert listed(server, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST).topic_list == ["Subscribed"]


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "enable_all_topic_list"),
        (RequestCode.GET_TOPICS_BY_CLUSTER, "enable_topic_list"),
        (RequestCode.GET_UNIT_TOPIC_LIST, "enable_topic_list"),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, "enable_topic_list"),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "enable_topic_list"),
    ],
)
def test_lists_can_be_switched_off(code: RequestCode, setting: str) -> None:
    server = QuietServer()
    setattr(server.config, setting, False)
    answer = server.ask(code, cluster="c1")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


def test_the_members_of_a_group_are_listed() -> None:
    server = two_clusters()
    server.register(RegisterRequest("broker-a", 1, cluster="c1"))

    def members(name: str) -> dict[int, str]:
        answer = server.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c1", brokerName=name)
        group = GetBrokerMemberGroupResponseBody.decode(answer.body or b"").broker_member_group
        assert group is not None
        assert (group.cluster, group.broker_name) == ("c1", name)
        return group.broker_addrs

    assert members("broker-a") == {0: "broker-a-0:10911", 1: "broker-a-1:10911"}
    assert members("broker-x") == {}


# Permissions


def test_write_permission_of_all_topics_of_a_broker_is_wiped_and_restored() -> None:
    server = two_clusters()
    wiped = server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert wiped.ext_fields == {"wipeTopicCount": "2"}
    assert server.perms("TopicB") == {"broker-a": 4, "broker-b": 6}
    added = server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert added.ext_fields == {"addTopicCount": "2"}
    assert server.perms("TopicB") == {"broker-a": 6, "broker-b": 6}
    unknown = server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-x")
    assert unknown.ext_fields == {"wipeTopicCount": "0"}


def test_a_wiped_permission_survives_registrations_that_are_no_news() -> None:
    server = two_clusters()
    server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    server.register(RegisterRequest("broker-a", cluster="c1", topics=["TopicA", "TopicB"]))
    assert server.perms("TopicA") == {"broker-a": 4}
    server.register(RegisterRequest("broker-a", cluster="c1", topics=["TopicA"], counter=2))
    assert server.perms("TopicA") == {"broker-a": 6}
    assert server.perms("TopicB")["broker-a"] == 4


def test_a_given_permission_is_to_read_and_write_and_nothing_else() -> None:
    server = QuietServer()
    server.register(RegisterRequest(topics=["TopicA", TopicConfig("TBW102", perm=7)]))
    server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert server.perms("TBW102") == {"broker-a": 6}


# One by one


def test_a_topic_is_deleted_everywhere_or_in_a_cluster() -> None:
    server = two_clusters()
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="TopicB", clusterName="c1")
    assert set(server.addresses("TopicB")) == {"broker-b"}
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="TopicB", clusterName="c3")
    assert set(server.addresses("TopicB")) == {"broker-b"}
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="TopicB")
    assert server.route("TopicB") is None
    assert server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="TopicB").code == ResponseCode.SUCCESS


def test_a_deleted_topic_is_back_when_its_broker_still_names_it() -> None:
    server = two_clusters()
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="TopicA")
    server.register(RegisterRequest("broker-a", cluster="c1", topics=["TopicA", "TopicB"]))
    assert server.addresses("TopicA")


def registered(server: QuietServer, topic: str, *brokers: str, reads: int = 3) -> int:
    route = TopicRouteData(queue_datas=[QueueData(name, reads, 3, 6) for name in brokers])
    return server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, route.encode(), topic=topic).code


def test_a_single_topic_is_registered_for_known_brokers() -> None:
    server = two_clusters()
    assert registered(server, "TopicN", "broker-a", "broker-b") == ResponseCode.SUCCESS
    route = server.route("TopicN")
    assert route is not None
    assert [(data.broker_name, data.read_queue_nums) for data in route.queue_datas] == [
        ("broker-a", 3),
        ("broker-b", 3),
    ]


def test_a_single_topic_is_registered_up_to_the_first_unknown_broker() -> None:
    server = two_clusters()
    assert registered(server, "TopicN", "broker-a", "broker-x") == ResponseCode.SUCCESS
    assert server.route("TopicN") is None
    assert registered(server, "TopicA", "broker-b", "broker-x", "broker-a") == ResponseCode.SUCCESS
    assert set(server.addresses("TopicA")) == {"broker-a", "broker-b"}


def test_a_single_topic_that_cannot_be_is_refused() -> None:
    server = QuietServer(NameServerLimits(topics=2))
    server.register(RegisterRequest())
    before = server.state()
    assert registered(server, "TopicN", "broker-a") == ResponseCode.SYSTEM_ERROR
    assert registered(server, "TopicA", "broker-a", reads=-1) == ResponseCode.SYSTEM_ERROR
    assert registered(server, "t" * 2000, "broker-a") == ResponseCode.SYSTEM_ERROR
    refused = server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, b"{", topic="TopicA")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert server.state() == before
    assert server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic="TopicA").code == ResponseCode.SUCCESS


def test_an_unknown_request_code_is_answered_as_unsupported() -> None:
    answer = QuietServer().ask(7777)
    assert (answer.code, answer.remark) == (3, " request type 7777 not supported")
