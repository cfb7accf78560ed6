"""Background tasks under injected errors: each runs again, and an error of one object stops none for the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.nameserver.broker_expiry import BrokerExpiry
from orbitmq.remoting import Connection, Limits
from orbitmq.remoting.endpoint import Endpoint
from orbitmq.store import StoreError
from orbitmq.store.config_tables import CONSUMER_OFFSETS
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import running_broker
from support.broker.requests import CONSUMERS, TOPIC
from support.remoting_harness import HOST, RawPeer, echo, eventually, request, serving

if TYPE_CHECKING:
    from collections.abc import Callable

ECHO = 9001


def fails() -> None:
    raise RuntimeError("injected")


def failing_first(works: Any, error: Exception | None = None) -> Any:
    """``works``, which raises the first time."""
    has_failed = False

    def call(*args: Any) -> Any:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise error or RuntimeError("injected")
        return works(*args)

    return call


# Connections


async def test_a_connection_whose_review_fails_is_closed_and_the_others_are_reviewed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    review, reviewed = Connection.review, set()
    async with (
        serving({ECHO: echo}, Limits(sweep_seconds=0.01)) as server,
        RawPeer.connected(server) as bad,
        RawPeer.connected(server) as good,
    ):
        for peer in (bad, good):
            await peer.ask(request(ECHO, 1))

        def failing(connection: Connection, now: float) -> None:
            if connection.remote_address == bad.address:
                fails()
            reviewed.add(connection.remote_address)
            review(connection, now)

        monkeypatch.setattr(Connection, "review", failing)
        assert await bad.rest() == b""
        reviewed.clear()
        await eventually(lambda: good.address in reviewed)
        await good.ask(request(ECHO, 2))
    assert "remoting: closing a connection: its review failed" in caplog.text


async def test_responses_leave_although_the_end_of_an_iteration_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving({ECHO: echo}) as server, RawPeer.connected(server) as peer:
        await peer.ask(request(ECHO, 1))
        monkeypatch.setattr(Endpoint, "intercept_received", failing_first(Endpoint.intercept_received))
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        peer.send(request(ECHO, 2))
        # The response of the failed iteration leaves with those of the next one.
        answers = [(await peer.ask(request(ECHO, 3))).opaque, (await peer.receive()).opaque]
    assert sorted(answers) == [2, 3]


# Tables


@pytest.mark.parametrize("error", [RuntimeError("injected"), StoreError("injected")])
async def test_offsets_whose_write_failed_are_written_at_the_next_interval(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async with running_broker(flushConsumerOffsetInterval=10) as broker:
        persistence = broker.offset_persistence
        required_end: Callable[[], int] = persistence._required_end
        monkeypatch.setattr(persistence, "_required_end", failing_first(required_end, error=error))
        broker.offsets.commit(CONSUMERS, TOPIC, 0, 7)

        def persisted() -> int | None:
            return broker.writer.load(CONSUMER_OFFSETS).offset_table.get(f"{TOPIC}@{CONSUMERS}", {}).get(0)

        await eventually(lambda: persisted() == 7)
    assert "offsets: failed to persist consumer offsets, will retry: injected" in caplog.text


# Name server


async def test_a_name_server_scans_again_after_a_scan_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = 0

    def failing(_: BrokerExpiry) -> None:
        nonlocal scans
        scans += 1
        fails()

    monkeypatch.setattr(BrokerExpiry, "scan", failing)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    config = NameServerConfig(
        listen_port=0,
        bind_address=HOST,
        kv_config_path="/ns/kv.json",
        config_store_path="/ns/properties",
        scan_not_active_broker_interval=10,
    )
    server = NameServer(config, disk=MemoryDisk())
    await server.start()
    await eventually(lambda: scans > 1)
    await server.stop(grace=0)
