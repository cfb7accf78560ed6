"""A name server on a real socket: it starts, notices who is gone, tells brokers of each other, and stops."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.bodies import ClusterInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.remoting import ListenError
from orbitmq.testing import MemoryDisk
from support.nameserver_harness import RegisterRequest
from support.remoting_harness import HOST, RawPeer, eventually, on_each_loop, request, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection

FOREVER = 10**9
QUICKLY = {"scan_not_active_broker_interval": 10}


@contextlib.asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[NameServer]:
    """A name server on a free port of this machine, which leaves nothing behind."""
    paths = {"kv_config_path": "/ns/kvConfig.json", "config_store_path": "/ns/namesrv.properties"}
    config = NameServerConfig(**{"listen_port": 0, "bind_address": HOST, **paths, **settings})
    server = NameServer(config, disk=MemoryDisk())
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace=0)


async def clusters_seen_by(peer: RawPeer) -> ClusterInfo:
    answer = await peer.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO, 1))
    return ClusterInfo.decode(answer.body or b"")


@on_each_loop
async def test_it_answers_in_the_order_of_the_requests() -> None:
    async with running() as server, RawPeer.connected(server._server) as peer:
        codes = (RequestCode.GET_NAMESRV_CONFIG, RequestCode.GET_ROUTEINFO_BY_TOPIC, 7777)
        peer.send(RegisterRequest().request().encode(), *(request(code, 10 + at) for at, code in enumerate(codes)))
        answers = [await peer.receive() for _ in range(4)]
        assert [answer.opaque for answer in answers] == [3, 10, 11, 12]
        assert [answer.code for answer in answers] == [0, 0, 17, 3]


@on_each_loop
async def test_a_broker_that_is_killed_is_gone_at_once() -> None:
    async with (
        running(scan_not_active_broker_interval=FOREVER) as server,
        RawPeer.connected(server._server) as client,
    ):
        async with RawPeer.connected(server._server) as broker:
            assert (await broker.ask(RegisterRequest().request().encode())).code == ResponseCode.SUCCESS
            assert (await clusters_seen_by(client)).broker_addr_table
            broker.hang_up()
            await eventually(lambda: not server.table.brokers)
        assert (await clusters_seen_by(client)).broker_addr_table == {}


@on_each_loop
async def test_a_silent_broker_is_forgotten_and_its_connection_closed() -> None:
    async with running(**QUICKLY) as server, RawPeer.connected(server._server) as broker:
        await broker.ask(RegisterRequest(fields={"heartbeatTimeoutMillis": 1}).request().encode())
        await eventually(lambda: not server.table.brokers)
        assert await broker.rest() == b""


@on_each_loop
async def test_a_connection_that_another_broker_uses_stays_open() -> None:
    async with running(**QUICKLY) as server, RawPeer.connected(server._server) as brokers:
        await brokers.ask(RegisterRequest("broker-b").request().encode())
        await brokers.ask(RegisterRequest("broker-a", fields={"heartbeatTimeoutMillis": 1}).request().encode())
        await eventually(lambda: len(server.table.brokers) == 1)
        assert set((await clusters_seen_by(brokers)).broker_addr_table) == {"broker-b"}


@on_each_loop
async def test_a_heartbeat_that_wants_no_answer_gets_none() -> None:
    async with running() as server, RawPeer.connected(server._server) as peer:
        fields = {"clusterName": "c", "brokerAddr": "a:1", "brokerName": "b"}
        answer = await peer.ask(
            request(RequestCode.BROKER_HEARTBEAT, 1, flag=ONEWAY, ext_fields=fields),
            request(RequestCode.BROKER_HEARTBEAT, 2, ext_fields=fields),
        )
        assert answer.opaque == 2


class Member:
    """A broker that listens for notices."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.address = ""
        self.notices: list[dict[str, str]] = []

    def notified(self, _: Connection, header: Header, _body: bytes, _type: int) -> bytes:
        assert header[2] & ONEWAY
        self.notices.append(header[6])
        return b""

    def register_frame(self) -> bytes:
        registration = RegisterRequest(
            id=self.id, address=self.address, fields={"enableActingMaster": True, "haServerAddr": "ha:1"}
        )
        return registration.request().encode()


@contextlib.asynccontextmanager
async def members(*ids: int) -> AsyncIterator[list[Member]]:
    group = [Member(broker_id) for broker_id in ids]
    async with contextlib.AsyncExitStack() as stack:
        for member in group:
            server = await stack.enter_async_context(
                serving({RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: member.notified})
            )
            member.address = f"{HOST}:{server.ports[0]}"
        yield group


@on_each_loop
async def test_a_group_hears_of_a_new_smallest_id_and_of_its_loss() -> None:
    async with (
        running(notify_min_broker_id_changed=True) as server,
        members(0, 1, 2) as (master, first, second),
        RawPeer.connected(server._server) as slaves,
    ):
        await slaves.ask(second.register_frame())
        await slaves.ask(first.register_frame())
        await eventually(lambda: second.notices)
        async with RawPeer.connected(server._server) as connection:
            await connection.ask(master.register_frame())
            await eventually(lambda: len(second.notices) == 2 and first.notices)
            connection.hang_up()
            await eventually(lambda: len(second.notices) == 3 and len(first.notices) == 2)
        came = {"minBrokerId": "0", "minBrokerAddr": master.address, "haBrokerAddr": "ha:1"}
        went = {"minBrokerId": "1", "minBrokerAddr": first.address, "offlineBrokerAddr": master.address}
        assert first.notices == [came, went]
        assert second.notices == [{**came, "minBrokerId": "1", "minBrokerAddr": first.address}, came, went]
        assert master.notices == []


@on_each_loop
async def test_notifications_are_off_by_default() -> None:
    async with (
        running() as server,
        members(0, 1) as (master, slave),
        RawPeer.connected(server._server) as peer,
    ):
        await peer.ask(slave.register_frame())
        await peer.ask(master.register_frame())
        assert server._notifications is not None
        assert not server._notifications._sending
        assert slave.notices == []


@on_each_loop
async def test_an_unreachable_broker_does_not_delay_notifications_to_others() -> None:
    async with (
        running(notify_min_broker_id_changed=True) as server,
        members(0, 1, 2) as (master, slave, unreachable),
        RawPeer.connected(server._server) as peer,
    ):
        unreachable.address = f"{HOST}:1"
        await peer.ask(unreachable.register_frame())
        await peer.ask(slave.register_frame())
        await peer.ask(master.register_frame())
        await eventually(lambda: slave.notices)
        assert server._notifications is not None
        sending = server._notifications._sending
        await eventually(lambda: not sending)


@on_each_loop
async def test_stopping_cancels_notifications_in_flight() -> None:
    async with running(notify_min_broker_id_changed=True) as server, RawPeer.connected(server._server) as peer:
        # Addresses for documentation: connections there are neither accepted nor refused.
        await peer.ask(RegisterRequest(id=1, address="192.0.2.1:10911").request().encode())
        await peer.ask(RegisterRequest(id=0, address="192.0.2.2:10911").request().encode())


@on_each_loop
async def test_a_port_in_use_is_an_error_with_its_address() -> None:
    async with running() as first:
        config = NameServerConfig(listen_port=first.port, bind_address=HOST, kv_config_path="/ns/kv.json")
        second = NameServer(config, disk=MemoryDisk())
        with pytest.raises(ListenError, match=str(first.port)):
            await second.start()
        await second.stop()


@on_each_loop
async def test_a_stopped_name_server_does_not_listen() -> None:
    async with running() as server:
        port = server.port
    config = NameServerConfig(listen_port=port, bind_address=HOST, kv_config_path="/ns/kv.json")
    again = NameServer(config, disk=MemoryDisk())
    await again.start()
    await again.stop(grace=0)
    await again.stop(grace=0)
