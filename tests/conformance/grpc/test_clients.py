"""Unmodified gRPC clients of several languages send and consume as they do with Apache's proxy."""

from __future__ import annotations

import contextlib
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from conformance.grpc.grpc_servers import grpc_servers, unavailable
from conformance.servers.processes import against_apache
from peers.agent import RefusedError
from peers.grpc import clients
from peers.grpc.clients import GO, LANGUAGES, NODE, PYTHON, GrpcClient, Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conformance.grpc.grpc_servers import Servers
    from peers.grpc.clients import Delivered

    Everywhere = Callable[[Callable[[GrpcClient], None]], None]

PATIENCE = 40.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    if reason := unavailable():
        pytest.skip(reason)
    with grpc_servers(tmp_path_factory.mktemp("grpc-servers")) as running:
        yield running


@pytest.fixture(scope="module")
def everywhere(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everywhere]:
    """Runs a scenario with the clients of all languages at the same time, and with one through a proxy."""
    with contextlib.ExitStack() as stack:
        running = []
        for language in LANGUAGES:
            if clients.unavailable(language) is None:
                home = tmp_path_factory.mktemp(f"grpc-{language}")
                running.append(stack.enter_context(GrpcClient(language, servers.endpoints, home=home)))
        if servers.proxy_endpoints and clients.unavailable(PYTHON) is None:
            home = tmp_path_factory.mktemp("grpc-proxy-client")
            client = GrpcClient(PYTHON, servers.proxy_endpoints, home=home)
            client.language = "python through a proxy"
            running.append(stack.enter_context(client))
        if not running:
            pytest.skip("no client can be run here")
        with ThreadPoolExecutor(len(running)) as pool:

            def run(scenario: Callable[[GrpcClient], None]) -> None:
                futures = {client.language: pool.submit(scenario, client) for client in running}
                failures = []
                for language, future in futures.items():
                    if (error := future.exception()) is not None:
                        error.add_note(f"client: {language}")
                        failures.append(error)
                if failures:
                    raise BaseExceptionGroup("clients failed", failures)

            yield run


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_client_takes_part(language: str) -> None:
    if reason := clients.unavailable(language):
        pytest.skip(reason)


def names(servers: Servers, kind: str = "NORMAL", *, ordered: bool = False, retries: int = 16) -> tuple[str, str]:
    """A topic and a group of a test's own."""
    number = next(_numbers)
    topic = servers.create_topic(f"topic-{number}", kind)
    return topic, servers.create_group(f"group-{number}", ordered=ordered, retries=retries)


def collect(receive: Callable[[], list[Delivered]], count: int) -> list[Delivered]:
    found: list[Delivered] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came: {found}"
        found += receive()
    return found


def test_a_simple_consumer_gets_every_property_and_acknowledges(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        topic, group = names(servers)
        client.start_simple("simple", group, {topic: "*"})
        client.start_producer("normal", topic)
        sent = client.publish(
            "normal",
            *(Outgoing(topic=topic, body=b"n%d" % n, tag="a", keys=["k"], properties={"x": "ä"}) for n in range(4)),
        )
        found = collect(lambda: client.receive("simple"), 4)
        assert {one.message_id for one in found} == {one["messageId"] for one in sent}
        assert {(one.tag, tuple(one.keys), one.properties["x"], one.attempt) for one in found} == {
            ("a", ("k",), "ä", 1)
        }
        assert {one.body for one in found} == {b"n0", b"n1", b"n2", b"n3"}
        client.ask("ack", name="simple", ids=[one.message_id for one in found[:3]])
        client.ask("hide", name="simple", message=found[3].message_id, seconds=10)
        client.close("normal")
        client.close("simple")

    everywhere(run)


def test_a_push_consumer_retries_and_filters_by_tag(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        topic, group = names(servers)
        client.start_push("push", group, {topic: "a || b"}, {"fails": 1})
        client.start_producer("tags", topic)
        client.publish("tags", *(Outgoing(topic=topic, body=text.encode(), tag=tag) for text, tag in [
            ("one", "a"), ("other", "c"), ("fails", "b")
        ]))  # fmt: skip
        found = collect(lambda: client.taken("push", 1, 5), 3)
        assert sorted((one.body, one.attempt) for one in found) == [(b"fails", 1), (b"fails", 2), (b"one", 1)]
        client.close("tags")
        client.close("push")

    everywhere(run)


def test_sql_filters(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        topic, group = names(servers)
        client.start_push("sql", group, {topic: "sql:price > 10"})
        client.start_producer("sqls", topic)
        client.publish(
            "sqls", *(Outgoing(topic=topic, body=b"%d" % n, properties={"price": str(n)}) for n in (5, 20))
        )
        assert [one.body for one in collect(lambda: client.taken("sql", 1, 5), 1)] == [b"20"]
        client.close("sqls")
        client.close("sql")

    everywhere(run)


def test_fifo_messages_come_in_order_and_die_after_their_retries(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        topic, group = names(servers, "FIFO", ordered=True, retries=1)
        client.start_push("fifo", group, {topic: "*"}, {"m2": 100})
        client.start_producer("fifos", topic)
        client.publish("fifos", *(Outgoing(topic=topic, body=b"m%d" % n, group="same") for n in range(5)))
        # The Node.js client knows no delays but exponential ones, and gives a message up without them.
        failing = [b"m2"] * (1 if client.language == NODE else 2)
        expected = [b"m0", b"m1", *failing, b"m3", b"m4"]
        found = collect(lambda: client.taken("fifo", 1, 5), len(expected))
        if client.language == GO:
            # The Go client goes on with what it received together while a failed message waits for its retry.
            assert list(dict.fromkeys(one.body for one in found)) == list(dict.fromkeys(expected))
            assert sorted(one.body for one in found) == sorted(expected)
        else:
            assert [one.body for one in found] == expected
        assert {one.group for one in found} == {"same"}
        client.close("fifos")
        client.close("fifo")

    everywhere(run)


def test_delayed_messages_come_in_time_and_can_be_recalled(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        topic, group = names(servers, "DELAY")
        client.start_push("late", group, {topic: "*"})
        client.start_producer("delays", topic)
        (recalled,) = client.publish("delays", Outgoing(topic=topic, body=b"recalled", delay_ms=4000))
        began = time.time()
        client.publish("delays", Outgoing(topic=topic, body=b"late", delay_ms=5000))
        assert (
            client.ask("recall", name="delays", topic=topic, handle=recalled["recallHandle"])
            == recalled["messageId"]
        )
        found = collect(lambda: client.taken("late", 1, 10), 1)
        assert [one.body for one in found] == [b"late"]
        assert time.time() - began > 3
        client.close("delays")
        client.close("late")

    everywhere(run)


def test_transactions_are_committed_rolled_back_and_checked(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        topic, group = names(servers, "TRANSACTION")
        client.start_push("tx", group, {topic: "*"})
        client.start_producer("txs", topic, check="commit")
        for action in ("commit", "rollback", "unknown"):
            message = Outgoing(topic=topic, body=action.encode()).as_json()
            client.ask("transaction", name="txs", message=message, action=action)
        # A check may overtake a commit on a busy machine, and a message come twice for it.
        seen: set[bytes] = set()
        deadline = time.monotonic() + PATIENCE
        expected = {b"commit", b"unknown"}
        while not expected <= seen and time.monotonic() < deadline:
            seen.update(one.body for one in client.taken("tx", 1, 10))
        # With these short intervals Apache's broker checks a message that it is about to roll back.
        assert seen - {b"rollback"} == expected if against_apache() else seen == expected
        client.close("txs")
        client.close("tx")

    everywhere(run)


def test_two_consumers_share_the_messages(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        topic, group = names(servers)
        for name in ("first", "second"):
            client.start_push(name, group, {topic: "*"})
        client.start_producer("shared", topic)
        client.publish("shared", *(Outgoing(topic=topic, body=b"%d" % n) for n in range(20)))
        found = collect(lambda: client.taken("first", 1, 0.5) + client.taken("second", 1, 0.5), 20)
        assert sorted(int(one.body) for one in found) == list(range(20))
        for name in ("shared", "first", "second"):
            client.close(name)

    everywhere(run)


def test_a_message_of_the_wrong_type_is_refused(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        topic, _ = names(servers, "FIFO")
        client.start_producer("wrong", topic)
        with pytest.raises(RefusedError):
            client.publish("wrong", Outgoing(topic=topic, body=b"no group"))
        client.close("wrong")

    everywhere(run)


def test_a_group_that_was_not_created_is_refused(servers: Servers, everywhere: Everywhere) -> None:
    def run(client: GrpcClient) -> None:
        if not client.language.startswith(PYTHON):
            return  # the answer does not depend on the client
        topic, _ = names(servers)
        client.start_simple("refused", "group-unknown", {topic: "*"})
        with pytest.raises(RefusedError):
            client.receive("refused")

    everywhere(run)
