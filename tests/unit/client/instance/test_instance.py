"""What clients share: who shares it, how routes are found, and what brokers hear and ask."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.client.config import ClientConfig, local_address, name_server_list, unique_instance_name
from orbitmq.client.errors import (
    BrokerError,
    InvalidMessageError,
    NoNameServerError,
    NoRouteError,
    NotRunningError,
)
from orbitmq.client.instance.instance import ClientInstance, _instances
from orbitmq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.flags import PERM_READ_WRITE
from orbitmq.protocol.names import AUTO_CREATE_TOPIC
from orbitmq.remoting import RemotingError
from orbitmq.testing.local_cluster import LocalCluster
from support.client.instance_harness import Consuming, Producing, instance_of
from support.client.producer_harness import TOPIC, PeerBroker, peer_brokers
from support.remoting_harness import HOST, eventually, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection

NOBODY = f"{HOST}:1"


# Names and addresses


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ("a:1",)),
        (" a:1 ; b:2;", ("a:1", "b:2")),
        ("http://MQ_INST_1_x.host:80", ("MQ_INST_1_x.host:80",)),
        (["a:1", "b:2"], ("a:1", "b:2")),
    ],
)
def test_name_servers_are_given_as_in_java(given: Any, expected: tuple[str, ...]) -> None:
    assert name_server_list(given) == expected


def test_the_address_of_a_cloud_instance_is_a_namespace_too() -> None:
    servers = name_server_list("http://MQ_INST_1_x.region.example:80")
    assert ClientConfig(name_servers=servers).namespace == "MQ_INST_1_x"
    assert ClientConfig(name_servers=servers, namespace="mine").namespace == "mine"
    assert ClientConfig(name_servers=("MQ_INST.example:80",)).namespace == ""


@pytest.mark.parametrize("name", ["poll_name_server_interval", "heartbeat_broker_interval", "api_timeout"])
def test_times_that_cannot_be_are_refused(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(InvalidMessageError, match=name):
        ClientConfig(name_servers=("a:1",), **options)


def test_no_name_server_at_all_is_an_error() -> None:
    for given in ("", " ; ", list[str]()):
        with pytest.raises(InvalidMessageError, match="no name server is given"):
            name_server_list(given)


def test_a_client_id_is_address_name_and_unit() -> None:
    config = ClientConfig(name_servers=("a:1",), client_ip="10.0.0.1")
    assert config.client_id("x") == "10.0.0.1@x"
    assert ClientConfig(name_servers=("a:1",), unit_name="u").client_id("x") == f"{local_address()}@x@u"


def test_two_names_that_are_made_up_differ() -> None:
    assert len({unique_instance_name() for _ in range(100)}) == 100


# Sharing


async def test_those_with_one_client_id_share_and_the_last_one_closes() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as first:
        async with instance_of(peers.name_server) as second, instance_of(peers.name_server, "ip@2") as third:
            assert second is first
            assert third is not first
            await first.route(TOPIC)
        await first.refresh(TOPIC)
    with pytest.raises(NotRunningError, match="closed"):
        await first.refresh(TOPIC)
    assert first not in _instances.values()


async def test_after_a_close_the_next_one_gets_a_new_one() -> None:
    async with peer_brokers() as peers:
        async with instance_of(peers.name_server) as first:
            pass
        async with instance_of(peers.name_server) as second:
            assert second is not first
            await second.route(TOPIC)


def test_what_belongs_to_a_loop_that_is_gone_is_forgotten() -> None:
    async def leave_open() -> ClientInstance:
        instance = ClientInstance.acquire(ClientConfig(name_servers=(NOBODY,)), "ip@1")
        for task in instance._timers:
            task.cancel()
        await asyncio.gather(*instance._timers, return_exceptions=True)
        await instance.client.close()
        return instance

    async def again() -> None:
        async with instance_of(NOBODY):
            assert left not in _instances.values()

    left = asyncio.run(leave_open())
    assert left in _instances.values()
    asyncio.run(again())


async def test_an_instance_belongs_to_its_loop() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as instance:
        failures: list[Exception] = []

        def elsewhere() -> None:
            try:
                asyncio.run(instance.refresh(TOPIC))
            except NotRunningError as error:
                failures.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert "another event loop" in str(failures[0])


async def test_a_group_has_one_producer_and_one_consumer() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as instance:
        producer, consumer = Producing(), Consuming()
        instance.add_producer(producer)
        instance.add_consumer(consumer)
        with pytest.raises(InvalidMessageError, match="'g'"):
            instance.add_producer(Producing())
        with pytest.raises(InvalidMessageError, match="'g'"):
            instance.add_consumer(Consuming())
        await instance.remove_producer(Producing())
        assert instance.producers == {"g": producer}
        await instance.remove_producer(producer)
        await instance.remove_consumer(consumer)
        assert not instance.producers
        assert not instance.consumers


# Routes


class CountingNames:
    """A name server that counts what it is asked, and answers when it is let."""

    def __init__(self, code: int = ResponseCode.TOPIC_NOT_EXIST, body: bytes | None = None) -> None:
        self.asked: list[str] = []
        self.code = code
        self.body = body
        self.waiting: list[tuple[Connection, Header, bytes]] = []
        self.holds = False

    def route(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        request = Command.of((serialize_type, b"", body), header)
        self.asked.append(request.ext_fields["topic"])
        answer = request.response(self.code, body=self.body, remark="said so").encode()
        if self.holds:
            self.waiting.append((connection, header, answer))
            return None
        return answer

    def let_go(self) -> None:
        for connection, header, answer in self.waiting:
            connection.answer(header, answer)
        self.waiting.clear()


@contextlib.asynccontextmanager
async def counting(names: CountingNames, **options: Any) -> AsyncIterator[ClientInstance]:
    async with (
        serving({RequestCode.GET_ROUTEINFO_BY_TOPIC: names.route}) as server,
        instance_of(f"{HOST}:{server.ports[0]}", **options) as instance,
    ):
        yield instance


async def test_a_route_is_asked_for_once_and_then_known() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as instance:
        route = await instance.route(TOPIC)
        assert await instance.route(TOPIC) is route
        assert await instance.refresh(TOPIC) is route
        assert [queue.broker_name for queue in route.publish_queues] == ["broker-a"] * 2 + ["broker-b"] * 2
        await peers.serve("broker-a", 3)
        assert await instance.route(TOPIC) is route
        newer = await instance.refresh(TOPIC)
        assert newer is not route
        assert len(newer.publish_queues) == 5
        assert instance.address(TOPIC, "broker-b") == peers.brokers[1].address
        assert instance.any_address(TOPIC) in {broker.address for broker in peers.brokers}


async def test_those_who_ask_at_the_same_time_share_the_answer() -> None:
    names = CountingNames()
    names.holds = True
    async with counting(names) as instance:
        asking = [asyncio.create_task(instance.route_to_publish("t", "", 4)) for _ in range(50)]
        await eventually(lambda: names.waiting)
        names.let_go()
        await eventually(lambda: names.asked == ["t", AUTO_CREATE_TOPIC])
        names.holds = False
        await eventually(lambda: names.waiting)
        names.let_go()
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(result) for result in results} == {NoRouteError}
        assert names.asked == ["t", AUTO_CREATE_TOPIC]


async def test_one_who_stops_waiting_does_not_stop_the_others() -> None:
    names = CountingNames()
    names.holds = True
    async with counting(names) as instance:
        first, second = (asyncio.create_task(instance.refresh("t")) for _ in range(2))
        await eventually(lambda: names.waiting)
        first.cancel()
        await asyncio.sleep(0)
        names.let_go()
        with pytest.raises(NoRouteError):
            await second
        assert first.cancelled()


async def test_whoever_waits_for_a_route_while_the_client_closes_is_told() -> None:
    names = CountingNames()
    names.holds = True
    async with counting(names) as instance:
        waiting = asyncio.create_task(instance.refresh("t"))
        await eventually(lambda: names.waiting)
    with pytest.raises(NotRunningError, match="closed"):
        await waiting


async def test_a_lookup_that_nobody_waits_for_any_more_fails_in_silence() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
    names = CountingNames(code=ResponseCode.SYSTEM_ERROR)
    names.holds = True
    async with counting(names) as instance:
        waiting = asyncio.create_task(instance.refresh("t"))
        await eventually(lambda: names.waiting)
        waiting.cancel()
        await asyncio.sleep(0)
        names.let_go()
        await eventually(lambda: not instance._refreshing)
    assert complaints == []


async def test_answers_that_make_no_sense_are_errors_of_the_client() -> None:
    async with counting(CountingNames(code=ResponseCode.SUCCESS, body=b"[nonsense")) as instance:
        with pytest.raises(NoRouteError, match="malformed route"):
            await instance.refresh("t")
    async with counting(CountingNames(code=ResponseCode.SYSTEM_ERROR)) as instance:
        with pytest.raises(BrokerError, match="said so"):
            await instance.refresh("t")


async def test_the_next_name_server_is_asked_if_one_does_not_answer() -> None:
    async with peer_brokers() as peers:
        for _ in range(4):
            async with instance_of(f"{NOBODY};{peers.name_server}") as instance:
                await instance.refresh(TOPIC)
                assert instance._name_servers[0] == peers.name_server


async def test_if_none_answers_the_error_names_them() -> None:
    async with instance_of(f"{NOBODY};{HOST}:2") as instance:
        with pytest.raises(NoNameServerError, match=r"127\.0\.0\.1:1"):
            await instance.refresh(TOPIC)


async def test_a_topic_that_does_not_exist_yet_is_modelled_on_another() -> None:
    async with LocalCluster() as cluster, instance_of(cluster.name_server) as instance:
        with pytest.raises(NoRouteError):
            await instance.route("new")
        model = await instance.route_to_publish("new", AUTO_CREATE_TOPIC, 3)
        assert [queue.queue_id for queue in model.publish_queues] == [0, 1, 2]
        assert {queue.topic for queue in model.publish_queues} == {"new"}
        assert await instance.route_to_publish("new", AUTO_CREATE_TOPIC, 3) is model
        with pytest.raises(NoRouteError):
            # There is nothing to read before somebody has written.
            await instance.route("new")


async def test_a_topic_whose_master_is_missing_is_not_called_unknown() -> None:
    queues = QueueData("broker-a", 2, 2, PERM_READ_WRITE)
    slave = BrokerData("cluster", "broker-a", {1: f"{HOST}:1"})
    names = CountingNames(ResponseCode.SUCCESS, TopicRouteData(queue_datas=[queues], broker_datas=[slave]).encode())
    async with counting(names) as instance:
        with pytest.raises(NoRouteError, match="'t' now: the master of broker-a is missing; it may be") as missing:
            await instance.route_to_publish("t", "", 4)
        names.code = ResponseCode.TOPIC_NOT_EXIST
        with pytest.raises(NoRouteError, match=r"'t' now: its brokers \(broker-a\) are not registered") as gone:
            await instance.route_to_publish("t", "", 4)
        with pytest.raises(NoRouteError, match="'other'; create it") as unknown:
            await instance.route_to_publish("other", "", 4)
        assert (missing.value.exists, gone.value.exists, unknown.value.exists) == (True, True, False)


async def test_routes_are_kept_fresh_and_consumers_hear_of_changes() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server, poll_name_server_interval=0.01) as instance:
        consumer, other = Consuming("g", TOPIC), Consuming("h", "other")
        instance.add_consumer(consumer)
        instance.add_consumer(other)
        await instance.route(TOPIC)
        await eventually(lambda: len(instance.routes) == 1)
        assert consumer.rebalances == 0
        await peers.serve("broker-b", 4)
        await eventually(lambda: consumer.rebalances)
        assert len(instance.routes[TOPIC].publish_queues) == 6
        assert other.rebalances == 0


async def test_a_refresh_that_fails_for_one_topic_does_not_stop_the_others() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as instance:
        instance.add_producer(Producing("g", "none", TOPIC))
        await instance.refresh_all()
        assert set(instance.routes) == {TOPIC}


async def test_a_brokers_address_is_found_in_the_routes_of_other_topics() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server, vip_channel_enabled=True) as instance:
        await instance.route(TOPIC)
        assert instance.address("unknown", "broker-a") == peers.brokers[0].address
        assert instance.address("unknown", "broker-z") is None
        assert instance.any_address("unknown") is None
        assert instance.send_address("h:10911") == "h:10909"


# Calls and heartbeats


def beats(broker: PeerBroker) -> list[dict[str, Any]]:
    return [json.loads(said.body or b"") for said in broker.others if said.code == RequestCode.HEART_BEAT]


async def test_a_refusal_of_a_call_is_an_error_with_its_code() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as instance:
        address = peers.brokers[0].address
        assert (await instance.call(address, Command(RequestCode.HEART_BEAT))).code == 0
        with pytest.raises(BrokerError) as refused:
            await instance.call(address, Command(7777))
        assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        with pytest.raises(RemotingError):
            await instance.call(NOBODY, Command(7777))


async def test_brokers_hear_who_is_here() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as instance:
        await instance.route(TOPIC)
        await instance.heartbeat_all()
        assert [beats(broker) for broker in peers.brokers] == [[], []]
        instance.add_producer(Producing("p"))
        instance.add_consumer(Consuming("c"))
        await instance.heartbeat_all()
        for broker in peers.brokers:
            said = beats(broker)[-1]
            assert said["clientID"] == "ip@1"
            assert {"groupName": "p"} in said["producerDataSet"]
            assert [data["groupName"] for data in said["consumerDataSet"]] == ["c"]
        assert set(instance.broker_versions) == {broker.address for broker in peers.brokers}


async def test_a_broker_that_is_down_does_not_keep_others_from_hearing() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as instance:
        instance.add_producer(Producing("p"))
        await instance.route(TOPIC)
        await peers.brokers[0].server.stop(0)
        await instance.heartbeat_all()
        assert beats(peers.brokers[1])


async def test_a_broker_that_comes_back_hears_at_once_who_is_here() -> None:
    async with peer_brokers("broker-a") as peers, instance_of(peers.name_server) as instance:
        broker = peers.brokers[0]
        consumer = Consuming("c", TOPIC)
        instance.add_consumer(consumer)
        await instance.route(TOPIC)
        await instance.heartbeat_all()
        for connection in broker.server.connections:
            connection.abort()
        await eventually(lambda: not broker.server.connections)
        broker.others.clear()
        rebalances = consumer.rebalances
        await instance.connection(broker.address)
        await eventually(lambda: beats(broker))
        await eventually(lambda: consumer.rebalances > rebalances)


async def test_brokers_are_told_of_those_who_leave() -> None:
    async with peer_brokers() as peers, instance_of(peers.name_server) as instance:
        producer, consumer = Producing("p"), Consuming("c")
        instance.add_producer(producer)
        instance.add_consumer(consumer)
        await instance.route(TOPIC)
        await instance.remove_producer(producer)
        await instance.remove_consumer(consumer)
        for broker in peers.brokers:
            left = [said.ext_fields for said in broker.others if said.code == RequestCode.UNREGISTER_CLIENT]
            assert left == [
                {"clientID": "ip@1", "producerGroup": "p"},
                {"clientID": "ip@1", "consumerGroup": "c"},
            ]
