"""The Java client's consumers of lite topics, unmodified: against OrbitMQ's broker and proxy.

Apache's proxy serves lite topics in CLUSTER mode only. With ``ORBITMQ_CONFORMANCE_PEER=apache`` the same tests run
through OrbitMQ's proxy against Apache's broker.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from conformance.grpc.grpc_servers import grpc_servers, unavailable
from conformance.servers.processes import against_apache
from peers.grpc import clients
from peers.grpc.clients import JAVA, GrpcClient, Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.grpc.grpc_servers import Servers
    from peers.grpc.clients import Delivered

LIGHT_QUEUES = {"enableLmq": "true", "enableMultiDispatch": "true"}
PARENT = "sessions"
PATIENCE = 60.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    if reason := unavailable() or clients.unavailable(JAVA):
        pytest.skip(reason)
    with grpc_servers(tmp_path_factory.mktemp("lite-servers"), LIGHT_QUEUES) as running:
        running.create_topic(PARENT, "LITE")
        yield running


@pytest.fixture(scope="module")
def endpoints(servers: Servers) -> list[str]:
    return [servers.proxy_endpoints] if against_apache() else [servers.endpoints, servers.proxy_endpoints]


@pytest.fixture(scope="module")
def agents(endpoints: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[GrpcClient]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(GrpcClient(JAVA, one, home=tmp_path_factory.mktemp("lite-java")))
            for one in endpoints
        ]


def send(client: GrpcClient, lite: str, *bodies: str) -> None:
    client.publish("producer", *(Outgoing(topic=PARENT, body=body.encode(), lite=lite) for body in bodies))


def collect(client: GrpcClient, name: str, count: int) -> list[Delivered]:
    found = client.taken(name, count, PATIENCE)
    assert len(found) == count, found
    return found


def everywhere(agents: list[GrpcClient], scenario: Callable[[GrpcClient, int], None]) -> None:
    with ThreadPoolExecutor(len(agents)) as pool:
        for future in [pool.submit(scenario, client, number) for number, client in enumerate(agents)]:
            future.result()


def test_a_consumer_gets_its_lite_topics_in_order_and_what_it_refuses_again(
    servers: Servers, agents: list[GrpcClient]
) -> None:
    def run(client: GrpcClient, number: int) -> None:
        group = servers.create_group(f"agents-{number}", attributes={"lite.bind.topic": PARENT})
        first, second, third = (f"{name}-{number}" for name in "abc")
        client.start_producer("producer", PARENT)
        client.start_lite("consumer", group, PARENT, [first, second], {"fails": 1})
        send(client, first, "1", "fails", "2")
        send(client, third, "unseen")
        send(client, second, "3")
        found = collect(client, "consumer", 5)
        of_first = [(one.body, one.attempt) for one in found if one.lite == first]
        assert of_first.index((b"fails", 1)) < of_first.index((b"fails", 2))
        assert sorted(of_first) == [(b"1", 1), (b"2", 1), (b"fails", 1), (b"fails", 2)]
        assert [one.body for one in found if one.lite == second] == [b"3"]
        client.ask("choose", name="consumer", lite=third)
        send(client, third, "seen")
        assert sorted((one.lite, one.body) for one in collect(client, "consumer", 2)) == [
            (third, b"seen"),
            (third, b"unseen"),
        ]
        client.ask("leave", name="consumer", lite=first)
        send(client, first, "too late")
        send(client, second, "4")
        assert [one.body for one in collect(client, "consumer", 1)] == [b"4"]
        client.close("consumer")
        client.close("producer")

    everywhere(agents, run)


def test_an_exclusive_lite_topic_is_taken_from_its_client(servers: Servers, agents: list[GrpcClient]) -> None:
    def run(client: GrpcClient, number: int) -> None:
        attributes = {"lite.bind.topic": PARENT, "lite.sub.model": "Exclusive"}
        group = servers.create_group(f"alone-{number}", attributes=attributes)
        lite = f"x-{number}"
        client.start_producer("producer", PARENT)
        client.start_lite("first", group, PARENT, [lite])
        client.start_lite("second", group, PARENT, [lite])
        send(client, lite, "1")
        assert [one.body for one in collect(client, "second", 1)] == [b"1"]
        # The server told it before it answered the second consumer.
        deadline = time.monotonic() + 30
        while client.ask("chosen", name="first"):
            assert time.monotonic() < deadline, "the first consumer still has the lite topic"
            time.sleep(0.05)
        assert client.taken("first", 1, 0.1) == []
        for name in ("first", "second", "producer"):
            client.close(name)

    everywhere(agents, run)
