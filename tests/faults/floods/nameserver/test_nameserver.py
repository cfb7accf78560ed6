"""Floods against a name server: very many brokers and topics, with other clients served in between."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from typing import TYPE_CHECKING

from orbitmq.nameserver import NameServer, NameServerConfig, broker_requests, route_answers, route_table
from orbitmq.nameserver.limits import NameServerLimits
from orbitmq.nameserver.registration import decode_registration
from orbitmq.platform import loop_slices
from orbitmq.protocol.bodies import (
    ClusterInfo,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.testing import MemoryDisk
from support.broker.requests import Talker, talking_at
from support.nameserver_harness import as_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import pytest

    from orbitmq.nameserver.brokers import Registration

TOPICS = [f"Topic{number}" for number in range(20_000)]
FEW = ("TopicA", "TopicB")

_opaques = itertools.count(1_000)


@contextlib.asynccontextmanager
async def name_server(limits: NameServerLimits | None = None) -> AsyncIterator[NameServer]:
    config = NameServerConfig(listen_port=0, bind_address="127.0.0.1", kv_config_path="/ns/kvConfig.json")
    server = NameServer(config, disk=MemoryDisk(), limits=limits)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def client_of(server: NameServer) -> contextlib.AbstractAsyncContextManager[Talker]:
    return talking_at(f"127.0.0.1:{server.port}")


def command(code: int, body: bytes | None = None, **fields: object) -> Command:
    return Command(code, next(_opaques), ext_fields=as_text(fields), body=body)


def place(number: int, *, name: str = "", broker_id: int = 0) -> dict[str, object]:
    return {
        "clusterName": "cluster",
        "brokerName": name or f"broker-{number}",
        "brokerAddr": f"10.0.{number >> 8}.{number & 255}:10911",
        "brokerId": broker_id,
        "haServerAddr": "",
    }


def registration(
    topics: Iterable[str], number: int, *, name: str = "", broker_id: int = 0, queues: int = 4
) -> Command:
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table={topic: TopicConfig(topic, queues, queues) for topic in topics}
    )
    return command(
        RequestCode.REGISTER_BROKER, RegisterBrokerBody(wrapper).encode(),
        **place(number, name=name, broker_id=broker_id), compressed=False, bodyCrc32=0,
    )  # fmt: skip


async def registers(client: Talker, *requests: Command) -> None:
    for request in requests:
        answer = await client.says(request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def is_served(client: Talker) -> None:
    answer = await client.asks(
        RequestCode.BROKER_HEARTBEAT, clusterName="cluster", brokerName="other", brokerAddr="10.9.9.9:1"
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def served_before(flooding: Talker, request: Command, other: Talker) -> tuple[Command, int]:
    """The response to a long request, and the number of requests of another client that were answered before it."""
    opaque = flooding.posts(request)
    served = 0
    while opaque not in flooding.answers:
        await is_served(other)
        served += 1
    return await flooding.answer_to(opaque), served


async def test_registrations_with_very_many_topics_are_decoded_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def watched(request: Command, limits: NameServerLimits) -> Registration:
        threads.append(threading.current_thread())
        return decode_registration(request, limits)

    monkeypatch.setattr(broker_requests, "decode_registration", watched)
    async with name_server() as server, client_of(server) as client:
        await registers(client, registration(TOPICS, 1), registration(FEW, 2))
        assert len(server.table.topics) == len(TOPICS) + len(FEW)
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


async def test_registrations_of_one_connection_are_processed_in_order() -> None:
    async with name_server() as server, client_of(server) as client:
        large, small = registration(TOPICS, 1), registration(["Topic0", "New"], 1, queues=8)
        client.posts(large)
        client.posts(small)
        for opaque in (large.opaque, small.opaque):
            assert (await client.answer_to(opaque)).code == ResponseCode.SUCCESS
        assert "New" in server.table.topics


async def test_a_large_registration_of_a_closed_connection_is_dropped() -> None:
    async with name_server() as server, client_of(server) as other:
        async with client_of(server) as client:
            client.posts(registration(TOPICS, 1))
            await asyncio.sleep(0)
        while len(server._server.connections) > 1:
            await is_served(other)
        assert not server.table.brokers


async def test_lists_and_permissions_of_very_many_topics_do_not_block_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # More slices than a fast machine needs: a request of the other client takes several of them.
    monkeypatch.setattr(loop_slices, "PIECES_AT_ONCE", 50)
    async with name_server() as server, client_of(server) as client, client_of(server) as other:
        await registers(client, registration(TOPICS, 1))
        for request in (
            command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
            command(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="cluster"),
        ):
            answer, served = await served_before(client, request, other)
            assert TopicList.decode(answer.body or b"").topic_list == sorted(TOPICS)
            assert served >= 3
        answer, served = await served_before(client, command(RequestCode.GET_UNIT_TOPIC_LIST), other)
        assert TopicList.decode(answer.body or b"").topic_list == []
        assert served >= 3
        monkeypatch.setattr(loop_slices, "SLICE_SECONDS", 0)
        monkeypatch.setattr(route_table, "TOPICS_AT_ONCE", 500)
        for code, name in (
            (RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount"),
            (RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount"),
        ):
            answer, served = await served_before(client, command(code, brokerName="broker-1"), other)
            assert answer.ext_fields[name] == str(len(TOPICS))
            assert served >= 3


async def test_a_broker_with_very_many_topics_unregisters_without_blocking_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_table, "TOPICS_AT_ONCE", 100)
    monkeypatch.setattr(loop_slices, "SLICE_SECONDS", 0)
    async with name_server() as server, client_of(server) as client, client_of(server) as other:
        await registers(client, registration(TOPICS, 1))
        answer, served = await served_before(
            client, command(RequestCode.UNREGISTER_BROKER, None, **place(1)), other
        )
        assert answer.code == ResponseCode.SUCCESS
        assert served >= 3
        assert (server.table.brokers, server.table.topics, server.table.places) == ({}, {}, 0)


async def test_a_connection_with_very_many_brokers_closes_without_blocking_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_slices, "SLICE_SECONDS", 0)
    async with name_server() as server, client_of(server) as other:
        await registers(other, registration(TOPICS, 1))
        async with client_of(server) as client:
            for number in range(2, 302):
                await registers(client, registration([f"{topic}{number % 7}" for topic in FEW], number))
        served = 0
        while len(server.table.brokers) > 1:
            await is_served(other)
            served += 1
        assert served >= 2
        assert set(server.table.topics) == set(TOPICS)


def test_removing_a_broker_scans_its_own_topics_only() -> None:
    """Scanning all topics took minutes for 10,000 brokers of one connection."""
    asked: list[str | None] = []
    server = NameServer(NameServerConfig(bind_address="127.0.0.1"), disk=MemoryDisk(), now_ms=lambda: 0)
    table = server.table
    table._on_change = asked.append

    class Watched(dict[str, object]):
        def items(self) -> object:  # type: ignore[override]
            raise AssertionError("all topics were scanned")

    table.topics = Watched(table.topics)  # type: ignore[assignment]
    for number in (1, 2):
        said = decode_registration(registration(FEW, number), NameServerLimits())
        for _ in table.registering(said, number, 0)[1]:
            pass
    removed = [step for step in table.removing(table.connected_by(1)) if step is not None]
    assert [broker.name for broker, _ in removed] == ["broker-1"]
    assert {name for on in table.topics.values() for name in on} == {"broker-2"}


async def test_routes_and_clusters_of_very_many_brokers_do_not_block_others() -> None:
    count = 2 * route_answers.SMALL_TABLE
    async with name_server() as server, client_of(server) as client, client_of(server) as other:
        await registers(client, *(registration(FEW, number) for number in range(count)))
        answer, served = await served_before(
            client, command(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TopicA"), other
        )
        route = TopicRouteData.decode(answer.body or b"")
        assert (len(route.queue_datas), len(route.broker_datas)) == (count, count)
        assert served >= 2
        answer, served = await served_before(client, command(RequestCode.GET_BROKER_CLUSTER_INFO), other)
        assert len(ClusterInfo.decode(answer.body or b"").broker_addr_table) == count
        assert served >= 1
        # The result that a thread computed from an older state is discarded.
        opaque = client.posts(command(RequestCode.GET_BROKER_CLUSTER_INFO))
        await registers(other, registration(FEW, count))
        await client.answer_to(opaque)
        answer = await client.says(command(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert len(ClusterInfo.decode(answer.body or b"").broker_addr_table) == count + 1


async def test_pairs_of_topics_and_brokers_are_limited() -> None:
    async with name_server(NameServerLimits(places=5)) as server, client_of(server) as client:
        await registers(client, registration(FEW, 1), registration(FEW, 2))
        answer = await client.says(registration(FEW, 3))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "2 new topics of one broker would make more than 5 for all brokers (maxTopicPlaces)"
        await registers(client, registration(FEW, 2))
        assert server.table.places == 4


async def test_members_of_one_broker_group_are_limited() -> None:
    async with name_server(NameServerLimits(members_of_group=3)) as server, client_of(server) as client:
        await registers(client, *(registration(FEW, at, name="one", broker_id=at) for at in range(3)))
        answer = await client.says(registration(FEW, 4, name="one", broker_id=4))
        assert (answer.code, answer.remark) == (1, "one has 3 members, and no more are allowed")
        assert len(server.table.brokers) == 3


async def test_encoded_routes_are_dropped_beyond_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_answers, "MAX_CACHED_BYTES", 1000)
    async with name_server() as server, client_of(server) as client:
        await registers(client, registration(TOPICS[:50], 1))
        for topic in TOPICS[:50]:
            answer = await client.says(command(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic))
            assert answer.code == ResponseCode.SUCCESS
            kept = server._answers._standard, server._answers._plain
            assert sum(len(body) for cache in kept for body in cache.values()) <= 1000
