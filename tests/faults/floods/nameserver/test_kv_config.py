"""A flood of changes to a name server's key-value configuration: few writes, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.nameserver import NameServer, NameServerConfig, NameServerLimits
from orbitmq.nameserver.kv_config import KvConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.testing import MemoryDisk, PowerCut
from support.nameserver_harness import RegisterRequest
from support.remoting_harness import HOST, RawPeer, eventually, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

T = TypeVar("T")
PATH = "/ns/kvConfig.json"
FLOOD = 300


class SlowDisk:
    """Runs work when a test opens the gate, like a thread with a slow disk."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.started = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.started += 1
        await self.gate.wait()
        return work()


@contextlib.asynccontextmanager
async def running(disk: MemoryDisk, slow: SlowDisk, **settings: Any) -> AsyncIterator[NameServer]:
    config = NameServerConfig(listen_port=0, bind_address=HOST, kv_config_path=PATH, **settings)
    server = NameServer(config, disk=disk, run_blocking=slow.run)
    await server.start()
    try:
        yield server
    finally:
        slow.gate.set()
        await server.stop(grace=0)


def put(number: int, namespace: str = "NS", value: str = "v" * 100) -> bytes:
    fields = {"namespace": namespace, "key": f"k{number}", "value": value}
    return request(RequestCode.PUT_KV_CONFIG, number, ext_fields=fields)


@contextlib.asynccontextmanager
async def losing_power() -> AsyncIterator[None]:
    """Ignores that a server cannot write to its dead disk when it stops."""
    with contextlib.suppress(PowerCut):
        yield


async def test_a_flood_of_changes_is_written_twice_and_others_are_served_meanwhile() -> None:
    disk, slow = MemoryDisk(), SlowDisk()
    left: MemoryDisk | None = None
    async with (
        losing_power(),
        running(disk, slow) as server,
        RawPeer.connected(server._server) as flooding,
        RawPeer.connected(server._server) as other,
    ):
        flooding.send(*map(put, range(FLOOD)))
        await eventually(lambda: slow.started)
        assert (await other.ask(RegisterRequest().request().encode())).code == ResponseCode.SUCCESS
        route = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext_fields={"topic": "TopicA"})
        assert (await other.ask(route)).code == ResponseCode.SUCCESS
        assert disk.stat(PATH) is None
        slow.gate.set()
        answers = [await flooding.receive() for _ in range(FLOOD)]
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert server._kv_config.writes <= 3
        left = disk.power_cut()
    assert left is not None
    again = KvConfig(left, PATH, NameServerLimits(), slow.run)
    again.load()
    assert len(again.namespace("NS") or ()) == FLOOD


async def test_pending_changes_count_towards_the_limits() -> None:
    disk, slow = MemoryDisk(), SlowDisk()
    async with running(disk, slow, max_kv_config_entries=10) as server, RawPeer.connected(server._server) as client:
        client.send(*map(put, range(12)))
        refused = [await client.receive() for _ in range(2)]
        assert [answer.code for answer in refused] == [ResponseCode.SYSTEM_ERROR] * 2
        assert "at most 10 are allowed (maxKvConfigEntries)" in (refused[0].remark or "")
        slow.gate.set()
        assert {(await client.receive()).code for _ in range(10)} == {ResponseCode.SUCCESS}
        deleted = request(RequestCode.DELETE_KV_CONFIG, 1, ext_fields={"namespace": "NS", "key": "k1"})
        assert (await client.ask(deleted)).code == ResponseCode.SUCCESS
        assert (await client.ask(put(11))).code == ResponseCode.SUCCESS


async def test_changes_of_a_write_that_fails_are_refused_and_do_not_count() -> None:
    disk, slow = MemoryDisk(), SlowDisk()
    async with running(disk, slow, max_kv_config_entries=3) as server, RawPeer.connected(server._server) as client:
        disk.fail("write")
        slow.gate.set()
        client.send(*map(put, range(3)))
        assert {(await client.receive()).code for _ in range(3)} == {ResponseCode.SYSTEM_ERROR}
        assert server._kv_config.namespace("NS") is None
        for number in range(3):
            assert (await client.ask(put(number))).code == ResponseCode.SUCCESS


async def test_changes_of_settings_are_written_one_after_another_without_blocking_others() -> None:
    disk, slow = MemoryDisk(), SlowDisk()
    path = "/ns/namesrv.properties"
    async with (
        running(disk, slow, config_store_path=path) as server,
        RawPeer.connected(server._server) as client,
        RawPeer.connected(server._server) as other,
    ):
        client.send(
            request(RequestCode.UPDATE_NAMESRV_CONFIG, 1, body=b"enableTopicList=false\n"),
            request(RequestCode.UPDATE_NAMESRV_CONFIG, 2, body=b"enableAllTopicList=false\n"),
        )
        await eventually(lambda: slow.started)
        assert (await other.ask(request(RequestCode.GET_NAMESRV_CONFIG, 1))).code == ResponseCode.SUCCESS
        slow.gate.set()
        assert {(await client.receive()).code for _ in range(2)} == {ResponseCode.SUCCESS}
        assert not server.config.enable_topic_list
        assert not server.config.enable_all_topic_list
