"""A cluster in the test process: served as by any other, restarted, killed, moved in time, and looked into."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from orbitmq.aio import Message, SendError, SendStatus
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.bodies import TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.compression import Compression, compress, compressed_flag
from orbitmq.store import LocalDisk, StoreError
from orbitmq.testing import LocalCluster, LoopClock, ManualClock, MemoryDisk
from support.broker.requests import TOPIC, bodies, pull_request, talking_at
from support.client.cluster_harness import cluster_folders, nothing_left, nothing_left_on_loop
from support.remoting_harness import HOST, PATIENCE, eventually, on_each_loop

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400
SYNC = {"flushDiskType": "SYNC_FLUSH"}
SEEDS = range(12)


async def stores(cluster: LocalCluster, *texts: bytes, broker: str = "broker-a", queue_id: int = 0) -> None:
    async with talking_at(cluster.address(broker)) as client:
        for body in texts:
            await client.stores(body, queueId=queue_id)


def held(cluster: LocalCluster, topic: str = TOPIC) -> list[bytes]:
    return [message.body for message in cluster.messages(topic)]


async def brokers_in_route(address: str, topic: str = "TBW102") -> list[str]:
    """Who serves a topic, as a name server says."""
    async with talking_at(address) as client:
        answer = await client.asks(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    if answer.code != ResponseCode.SUCCESS or answer.body is None:
        return []
    return sorted(broker.broker_name for broker in TopicRouteData.decode(answer.body).broker_datas)


# Up and down


@on_each_loop
async def test_a_cluster_serves_clients_that_were_told_its_name_server() -> None:
    async with LocalCluster() as cluster:
        assert await brokers_in_route(cluster.name_server) == ["broker-a"]
        await stores(cluster, b"one", b"two")
        assert held(cluster) == [b"one", b"two"]


async def test_every_name_server_knows_every_broker_from_the_start() -> None:
    async with LocalCluster(name_servers=2, brokers=3) as cluster:
        assert cluster.names == ["name-server-a", "name-server-b", "broker-a", "broker-b", "broker-c"]
        for address in cluster.name_server.split(";"):
            assert await brokers_in_route(address) == ["broker-a", "broker-b", "broker-c"]


async def test_two_clusters_share_nothing() -> None:
    async with LocalCluster() as one, LocalCluster() as other:
        await stores(one, b"here")
        assert held(one) == [b"here"]
        assert held(other) == []
        assert one.name_server != other.name_server


@on_each_loop
async def test_a_cluster_leaves_nothing_behind_in_its_loop() -> None:
    async with nothing_left_on_loop(), LocalCluster(name_servers=2, brokers=2) as cluster:
        await stores(cluster, b"x")
        await cluster.kill("broker-a")
        await cluster.restart("broker-b")
        await cluster.start("broker-a")
        await cluster.kill()


async def test_a_temporary_store_is_removed_and_a_given_directory_is_kept(tmp_path: Path) -> None:
    before = cluster_folders()
    async with nothing_left_on_loop(), LocalCluster(disk="local") as cluster:
        await stores(cluster, b"x")
        assert len(cluster_folders() - before) == 1
    async with LocalCluster(directory=tmp_path) as cluster:
        await stores(cluster, b"kept")
    async with LocalCluster(directory=tmp_path) as cluster:
        assert held(cluster) == [b"kept"]


async def test_a_store_in_memory_touches_no_folder() -> None:
    async with LocalCluster() as cluster:
        await stores(cluster, b"x")
        assert isinstance(cluster.disk(), MemoryDisk)
        assert LocalDisk().stat(cluster.broker().settings.store.store_path_root_dir) is None


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"listenPort": "1234"}, "a local cluster sets it itself"),
        ({"maxMesageSize": "1"}, "no such setting"),
        ({"maxMessageSize": "-1"}, "maxMessageSize"),
    ],
)
async def test_wrong_settings_are_refused_and_nothing_is_left(settings: dict[str, str], complaint: str) -> None:
    async with nothing_left_on_loop():
        with pytest.raises(ConfigError, match=complaint):
            async with LocalCluster(disk="local", settings=settings):
                pass


async def test_a_cluster_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="up to 26 brokers"):
        LocalCluster(brokers=27)
    with pytest.raises(ValueError, match="not in memory"):
        LocalCluster(directory=tmp_path, disk="memory")


async def test_a_server_that_is_not_there_is_refused_by_name() -> None:
    async with LocalCluster() as cluster:
        with pytest.raises(ValueError, match="there are name-server-a, broker-a"):
            await cluster.kill("broker-b")
        with pytest.raises(RuntimeError, match="starts once"):
            await cluster.start()
        await cluster.stop("broker-a")
        with pytest.raises(ValueError, match="does not run"):
            cluster.broker()


# Restarts


@pytest.mark.parametrize("disk", ["memory", "local"])
async def test_a_restarted_broker_has_its_port_and_its_messages(disk: str) -> None:
    async with LocalCluster(disk="memory" if disk == "memory" else "local") as cluster:
        await stores(cluster, b"before")
        address = cluster.address("broker-a")
        await cluster.restart()
        assert cluster.address("broker-a") == address
        assert cluster.broker().store.recovery.clean
        await stores(cluster, b"after")
        assert held(cluster) == [b"before", b"after"]


async def test_a_stopped_broker_is_out_of_the_routes_until_it_is_started() -> None:
    async with LocalCluster(brokers=2) as cluster:
        await cluster.stop("broker-a")
        assert await brokers_in_route(cluster.name_server) == ["broker-b"]
        await cluster.start("broker-a")
        assert await brokers_in_route(cluster.name_server) == ["broker-a", "broker-b"]


async def test_brokers_are_registered_when_a_name_server_is_back() -> None:
    async with LocalCluster(name_servers=2) as cluster:
        await cluster.kill("name-server-a")
        with pytest.raises(ConnectionRefusedError):
            await brokers_in_route(cluster.address("name-server-a"))
        await cluster.start("name-server-a")
        for address in cluster.name_server.split(";"):
            assert await brokers_in_route(address) == ["broker-a"]


# Power cuts


@on_each_loop
async def test_a_power_cut_breaks_connections_without_a_word() -> None:
    async with LocalCluster() as cluster, talking_at(cluster.address("broker-a")) as client:
        await client.stores(b"x")
        held_pull = client.posts(pull_request(1, hold_ms=1000 * PATIENCE))
        await client.catch_up()
        await cluster.kill()
        await eventually(client.reader.at_eof)
        assert held_pull not in client.answers
        await eventually_out_of_routes(cluster)


async def eventually_out_of_routes(cluster: LocalCluster) -> None:
    async with asyncio.timeout(PATIENCE):
        while await brokers_in_route(cluster.name_server):  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@on_each_loop
async def test_a_paused_broker_reads_nothing_until_it_is_resumed() -> None:
    async with LocalCluster() as cluster, talking_at(cluster.address("broker-a")) as known:
        await known.stores(b"before")
        cluster.pause()
        sends = [asyncio.create_task(known.stores(b"known")), asyncio.create_task(stores(cluster, b"new"))]
        server = cluster.broker()._server
        assert server is not None
        acceptor = server._acceptor
        assert acceptor is not None
        await eventually(lambda: acceptor.held)
        assert held(cluster) == [b"before"]
        assert not any(send.done() for send in sends)
        cluster.resume()
        await asyncio.gather(*sends)
        assert sorted(held(cluster)) == [b"before", b"known", b"new"]
        cluster.pause()
        cluster.pause()
        # It is stopped, and everything is left in order, as from any other state.


async def test_a_paused_slave_is_behind_until_it_is_resumed() -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "100"}
    async with LocalCluster(replicas=2, settings=settings) as cluster:
        master = cluster.broker()
        await eventually(lambda: len(master.replication.acks))
        cluster.pause("broker-a-1")
        async with cluster.producer(group="p") as producer:
            assert (await producer.send(Message(TOPIC, b"1"))).status is SendStatus.FLUSH_SLAVE_TIMEOUT
            cluster.resume("broker-a-1")
            master.settings.store.slave_timeout = 60_000
            assert (await producer.send(Message(TOPIC, b"2"))).status is SendStatus.SEND_OK
        await cluster.wait_until_replicated()
        cluster.pause()
        async with cluster.producer(group="q", send_msg_timeout=0.2, retry_times_when_send_failed=0) as producer:
            with pytest.raises(SendError):
                await producer.send(Message(TOPIC, b"3"))
            cluster.resume()
            await eventually(lambda: len(held(cluster)) == 3)


async def test_what_is_acknowledged_under_sync_flush_survives_every_power_cut() -> None:
    sent = [b"%d" % number for number in range(5)]
    for seed in SEEDS:
        async with LocalCluster(settings=SYNC, seed=seed) as cluster:
            await stores(cluster, *sent)
            await cluster.kill()
            await cluster.start("broker-a")
            assert not cluster.broker().store.recovery.clean
            assert held(cluster) == sent


async def test_a_power_cut_loses_what_was_not_synced_and_what_is_left_is_whole() -> None:
    sent = [b"%d" % number * 3000 for number in range(5)]
    left = []
    for seed in SEEDS:
        async with LocalCluster(seed=seed) as cluster:
            await stores(cluster, *sent)
            await cluster.kill()
            await cluster.start("broker-a")
            found = held(cluster)
            assert found == [body for body in sent if body in found]
            left.append(len(found))
    assert min(left) == 0
    assert max(left) == len(sent)


async def test_the_same_seed_loses_the_same() -> None:
    outcomes = set()
    for _ in range(3):
        async with LocalCluster(seed=7, clock=ManualClock(1_700_000_000_000)) as cluster:
            await stores(cluster, *[bytes(3000)] * 5)
            await cluster.kill()
            await cluster.start("broker-a")
            outcomes.add(len(held(cluster)))
    assert len(outcomes) == 1


async def test_a_kill_in_a_directory_keeps_what_was_written_and_cleans_nothing_up(tmp_path: Path) -> None:
    async with LocalCluster(directory=tmp_path) as cluster:
        await stores(cluster, b"written")
        await cluster.kill()
        assert (tmp_path / "broker-a" / "abort").exists()
        await cluster.start("broker-a")
        assert held(cluster) == [b"written"]


async def test_the_power_of_one_broker_fails_without_the_others() -> None:
    async with LocalCluster(brokers=2) as cluster:
        await stores(cluster, b"elsewhere", broker="broker-b")
        await cluster.kill("broker-a")
        assert await brokers_in_route(cluster.name_server) == ["broker-b"]
        assert held(cluster) == [b"elsewhere"]


async def test_a_power_cut_in_the_midst_of_sends_that_wait_for_the_disk_ends_them() -> None:
    async with (
        nothing_left_on_loop(),
        LocalCluster(settings=SYNC) as cluster,
        talking_at(cluster.address("broker-a")) as client,
    ):
        sends = [asyncio.create_task(client.sends(b"x")) for _ in range(50)]
        await asyncio.sleep(0.005)
        acknowledged = len(client.answers)
        await cluster.kill()
        for send in sends:
            send.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
        await cluster.start("broker-a")
        assert len(held(cluster)) >= acknowledged


async def test_a_disk_in_memory_fails_on_request() -> None:
    async with LocalCluster(settings=SYNC) as cluster, talking_at(cluster.address("broker-a")) as client:
        disk = cluster.disk()
        assert isinstance(disk, MemoryDisk)
        await client.stores(b"before")
        disk.fail("sync", path_contains="commitlog")
        assert (await client.sends(b"x")).code == ResponseCode.FLUSH_DISK_TIMEOUT
        with contextlib.suppress(StoreError):  # which cannot be closed properly any more
            await cluster.stop("broker-a")


# Time


async def test_a_delay_of_three_days_is_over_at_once() -> None:
    settings = {"messageDelayLevel": "1s 3d"}
    async with LocalCluster(settings=settings) as cluster, talking_at(cluster.address("broker-a")) as client:
        await client.stores(b"later", properties={"DELAY": "2"})
        await cluster.advance(3 * DAY - 60)
        assert held(cluster) == []
        waiting = client.posts(pull_request(hold_ms=1000 * PATIENCE))
        await client.catch_up()
        await cluster.advance(60)
        assert held(cluster) == [b"later"]
        assert bodies(await client.answer_to(waiting)) == [b"later"]


async def test_many_messages_that_come_due_are_all_there_after_an_advance() -> None:
    async with LocalCluster(settings=SYNC) as cluster, talking_at(cluster.address("broker-a")) as client:
        sends = [client.stores(b"%d" % number, properties={"DELAY": "3"}) for number in range(100)]
        await asyncio.gather(*sends)
        await cluster.advance(10)
        assert len(held(cluster)) == 100


async def test_messages_and_members_are_still_there_after_a_month() -> None:
    async with LocalCluster() as cluster, talking_at(cluster.address("broker-a")) as client:
        await client.stores(b"old")
        await client.subscribes()
        await cluster.advance(30 * DAY)
        cluster.broker().clients.expire()
        assert list(cluster.broker().clients.consumers) == ["CG_test"]
        cluster.broker().service.retention.run()
        assert held(cluster) == [b"old"]
        await client.stores(b"new")
        first, second = cluster.messages(TOPIC)
        assert second.store_timestamp - first.store_timestamp >= 30 * DAY * 1000


async def test_a_clock_of_the_tests_own_stands_still() -> None:
    clock = ManualClock(1_700_000_000_000)
    async with LocalCluster(clock=clock) as cluster:
        await stores(cluster, b"x")
        await cluster.advance(1.5)
        await stores(cluster, b"y")
        assert [message.store_timestamp for message in cluster.messages(TOPIC)] == [
            1_700_000_000_000,
            clock.now_ms(),
        ]
        assert clock.now_ms() == 1_700_000_001_500


def test_a_loop_clock_runs_as_its_loop_and_can_be_moved_ahead() -> None:
    seconds = [100.0]
    clock = LoopClock(lambda: seconds[0], start_ms=1_700_000_000_000)
    seconds[0] += 1.25
    assert clock.now_ms() == 1_700_000_001_250
    clock.advance(3_600_000)
    assert clock.now_ms() == 1_700_003_601_250
    assert clock.hour() == 23
    assert clock.stamp() == "20231114231321250"
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)


# In a thread


def test_a_cluster_in_a_thread_serves_plain_code_and_leaves_nothing_behind() -> None:
    with nothing_left():
        with LocalCluster(name_servers=1, brokers=2, settings=SYNC) as cluster:
            assert cluster.names == ["name-server-a", "broker-a", "broker-b"]
            asyncio.run(_stores_at(cluster.address("broker-a"), b"x"))
            cluster.kill("broker-a")
            cluster.start("broker-a")
            cluster.restart()
            cluster.stop("broker-b")
            assert [message.body for message in cluster.messages(TOPIC)] == [b"x"]
            assert cluster.name_server.startswith(f"{HOST}:")
            assert cluster.dead_letters("CG_test") == []
            assert cluster.consumer_offsets("CG_test") == {}
            assert isinstance(cluster.disk("broker-b"), MemoryDisk)
        with pytest.raises(RuntimeError, match="is not running"):
            cluster.messages(TOPIC)


def test_plain_code_moves_time_ahead_too() -> None:
    with LocalCluster() as cluster:
        asyncio.run(_stores_at(cluster.address("broker-a"), b"later", properties={"DELAY": "18"}))
        assert cluster.messages(TOPIC) == []
        cluster.advance(7200)
        assert [message.text() for message in cluster.messages(TOPIC)] == ["later"]


def test_a_cluster_in_a_thread_that_cannot_start_leaves_nothing_behind() -> None:
    cluster = LocalCluster(disk="local", settings={"noSuch": "1"})
    with nothing_left(), pytest.raises(ConfigError, match="no such setting"), cluster:
        pass


async def _stores_at(address: str, body: bytes, properties: dict[str, str] | None = None) -> None:
    async with talking_at(address) as client:
        await client.stores(body, properties=properties)


# Messages


async def test_messages_are_shown_as_they_were_sent_in_the_order_they_were_stored() -> None:
    async with LocalCluster(brokers=2, clock=(clock := ManualClock(1_700_000_000_000))) as cluster:
        for number, broker in enumerate(("broker-a", "broker-b", "broker-a")):
            await stores(cluster, b"%d" % number, broker=broker, queue_id=number)
            clock.advance(1)
        async with talking_at(cluster.address("broker-b")) as client:
            said = {"TAGS": "paid", "KEYS": "42 43", "amount": "9"}
            packed = compress(b"large", Compression.LZ4)
            await client.stores(packed, properties=said, sysFlag=compressed_flag(0, Compression.LZ4))
        assert held(cluster) == [b"0", b"1", b"2", b"large"]
        found = cluster.messages(TOPIC)
        assert [message.broker_name for message in found] == ["broker-a", "broker-b", "broker-a", "broker-b"]
        assert [(message.queue_id, message.queue_offset) for message in found] == [(0, 0), (1, 0), (2, 0), (0, 0)]
        last = found[-1]
        assert (last.tags, last.keys, last.properties["amount"]) == ("paid", ["42", "43"], "9")


async def test_a_topic_that_nobody_sent_to_has_no_messages() -> None:
    async with LocalCluster() as cluster:
        assert cluster.messages("nobodys") == []


async def test_more_messages_than_one_pull_gives_are_all_shown() -> None:
    async with LocalCluster() as cluster, talking_at(cluster.address("broker-a")) as client:
        await asyncio.gather(*(client.stores(bytes(10_000)) for _ in range(300)))
        assert [message.queue_offset for message in cluster.messages(TOPIC)] == list(range(300))
