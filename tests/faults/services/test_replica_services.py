"""Injected errors in the services of replicas, exporters and the console: each goes on."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from orbitmq.auth import audit as audit_log
from orbitmq.auth.audit import AuditLog
from orbitmq.broker.escape import bridge as escape_bridge
from orbitmq.broker.ha.slave_connection import SlaveConnection
from orbitmq.broker.quarantine import MAX_ATTEMPTS
from orbitmq.broker.slave_sync import acting
from orbitmq.dashboard.history.sampler import Sampler
from orbitmq.metrics.periodic import PeriodicExporter
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.proxy import server as proxy_server
from orbitmq.store import StoredMessage
from orbitmq.testing import LocalCluster, MemoryDisk
from support.broker.replica_harness import FAST, SLAVE, log_bytes
from support.remoting_harness import eventually

if TYPE_CHECKING:
    import pytest

    from orbitmq.broker import Broker

ACTING = {
    "slaveMetadataCheckPeriod": "30",
    "enableSlaveActingMaster": "true",
    "syncBrokerMemberGroupPeriod": "30",
}


def failing(works: Any, times: int = 1, error: type[Exception] = RuntimeError) -> tuple[Any, list[int]]:
    """``works``, which raises so many times before, and the number of its calls."""
    calls = [0]

    def call(*args: Any, **given: Any) -> Any:
        calls[0] += 1
        if calls[0] <= times:
            raise error("injected")
        return works(*args, **given)

    return call, calls


def fails() -> None:
    raise RuntimeError("injected")


def fill(master: Broker) -> None:
    for number in range(20):
        master.store.append(StoredMessage("orders", 0, b"%d" % number * 500))


# Replicas


async def test_a_slave_whose_copying_fails_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalCluster(replicas=2, settings=FAST) as cluster:
        master, slave = cluster.broker(), cluster.broker(SLAVE)
        assert slave.slave is not None
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        call, calls = failing(slave.slave.log.accept)
        monkeypatch.setattr(slave.slave.log, "accept", call)
        fill(master)
        await eventually(lambda: calls[0] > 1 and slave.store.log.end == master.store.log.end)
        assert log_bytes(slave) == log_bytes(master)


async def test_a_slave_that_cannot_be_served_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalCluster(replicas=3, settings=FAST) as cluster:
        master = cluster.broker()
        good = cluster.broker("broker-a-2")
        await eventually(lambda: len(master.replication.acks) == 2)
        bad = next(slave for slave in master.replication.slaves if slave.acked >= 0)
        works = SlaveConnection.push

        def push(slave: SlaveConnection) -> None:
            if slave is bad:
                raise RuntimeError("injected")
            works(slave)

        monkeypatch.setattr(SlaveConnection, "push", push)
        fill(master)
        # The one whose connection was closed connects again.
        await eventually(lambda: good.store.log.end == cluster.broker(SLAVE).store.log.end == master.store.log.end)
        assert bad not in master.replication.slaves


async def test_the_tables_of_a_slave_follow_after_a_round_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalCluster(replicas=2, settings=ACTING) as cluster:
        slave = cluster.broker(SLAVE)
        assert slave.slave_sync is not None
        call, calls = failing(slave.slave_sync.sync, 2)
        monkeypatch.setattr(slave.slave_sync, "sync", call)
        await eventually(lambda: calls[0] > 2)
        await eventually(lambda: slave.slave_sync is not None and slave.slave_sync.is_in_sync)


async def test_a_slave_looks_for_its_master_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalCluster(replicas=2, settings=ACTING) as cluster:
        slave = cluster.broker(SLAVE)
        call, calls = failing(acting.members_of_group, 2)
        monkeypatch.setattr(acting, "members_of_group", call)
        heard = []
        slave.acting.on_change.insert(0, fails)
        slave.acting.on_change.append(lambda: heard.append(slave.role.acts_as_master))
        await eventually(lambda: calls[0] > 2)
        await cluster.kill("broker-a")
        await eventually(lambda: heard == [True])


async def test_a_message_that_cannot_be_sent_to_another_master_keeps_no_other() -> None:
    sent = []

    class Bridge(escape_bridge.EscapeBridge):
        async def _targets_of(self, message: StoredMessage) -> Any:
            if message.body == b"poison":
                raise RuntimeError("injected")
            sent.append(message.body)
            return [SimpleNamespace(name="b", address="x", queues=1)]

        async def _send(self, *_: Any) -> Any:
            return SimpleNamespace(code=0, remark="")

    async with LocalCluster() as cluster:
        broker = cluster.broker()
        bridge = Bridge(broker.runtime, broker.registration.ask)
        poison = StoredMessage("orders", 0, b"poison")
        attempts = [await bridge._has_sent(poison) for _ in range(MAX_ATTEMPTS)]
        assert attempts == [False] * (MAX_ATTEMPTS - 1) + [True]
        assert broker.stats.quarantine.counts == {"escape": 1}
        assert await bridge._has_sent(StoredMessage("orders", 0, b"sound"))
        assert sent == [b"sound"]


async def test_a_message_that_all_other_masters_refuse_for_long_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"full": ResponseCode.SERVICE_NOT_AVAILABLE, "forbidden": ResponseCode.NO_PERMISSION}

    class Bridge(escape_bridge.EscapeBridge):
        async def _targets_of(self, _: StoredMessage) -> Any:
            return [SimpleNamespace(name="b", address="x", queues=1)]

        async def _send(self, message: StoredMessage, _: Any) -> Any:
            return SimpleNamespace(code=codes[message.topic], remark="")

    async with LocalCluster() as cluster:
        broker = cluster.broker()
        bridge = Bridge(broker.runtime, broker.registration.ask)
        full, *forbidden = (StoredMessage(topic, 0, b"") for topic in ("full", "forbidden", "forbidden"))
        assert not any([await bridge._has_sent(one) for one in (full, *forbidden)])
        monkeypatch.setattr(escape_bridge, "REFUSED_SECONDS", 0)
        assert not await bridge._has_sent(full)
        assert all([await bridge._has_sent(one) for one in forbidden])
        assert list(broker.stats.quarantine.counts) == ["escape"]


# Registration, metrics, console, proxy, audit log


async def test_a_broker_registers_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalCluster() as cluster:
        broker = cluster.broker()
        client = next(iter(broker.registration._links.values()))
        call, calls = failing(client._tell)
        monkeypatch.setattr(client, "_tell", call)
        broker.registration.register_soon()
        await eventually(lambda: calls[0] > 1)


async def test_an_export_that_fails_is_followed_by_the_next() -> None:
    exported: list[Any] = []
    call, _ = failing(exported.append, 2)

    async def collect() -> Any:
        return len(exported)

    exporter = PeriodicExporter(collect, SimpleNamespace(export=call, close=lambda: None), 0.005)
    exporter.start()
    await eventually(lambda: len(exported) > 1)
    await exporter.stop()


async def test_a_sample_of_the_console_that_fails_is_followed_by_the_next() -> None:
    sampler = Sampler(SimpleNamespace(all=list), SimpleNamespace(), 0.005)  # type: ignore[arg-type]
    samples: list[Any] = []
    call, _ = failing(samples.append, 2)

    async def sample(cluster: Any) -> None:
        call(cluster)

    repeating = asyncio.create_task(sampler._repeat(SimpleNamespace(name="c"), sample, 0.005))  # type: ignore[arg-type]
    await eventually(lambda: len(samples) > 1)
    repeating.cancel()


async def test_a_task_of_the_proxy_that_fails_is_repeated() -> None:
    done: list[int] = []
    call, _ = failing(done.append, 2)

    async def job() -> None:
        call(1)

    repeating = asyncio.create_task(proxy_server._every(0.005, job))
    await eventually(lambda: len(done) > 1)
    repeating.cancel()


async def test_an_audit_log_whose_write_failed_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "SECONDS", 0.005)
    disk = MemoryDisk()
    audit = AuditLog(disk, "/a", 1 << 20, lambda: 1, in_thread)
    call, _ = failing(audit._append)
    monkeypatch.setattr(audit, "_append", call)
    audit.refused((RequestCode.UPDATE_BROKER_CONFIG, 1, 0, 1, 0, None, {}), "203.0.113.9:1", "no")  # type: ignore[arg-type]
    audit.start()
    await eventually(lambda: disk.stat("/a/audit.jsonl"))
    await audit.stop()
    assert disk.read("/a/audit.jsonl").count(b"\n") == 1


async def test_an_audit_log_that_ends_during_a_write_has_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "SECONDS", 0.005)
    disk, is_writing, may_end = MemoryDisk(), threading.Event(), threading.Event()
    audit = AuditLog(disk, "/a", 1 << 20, lambda: 1, in_thread)
    append = audit._append

    def slow(data: bytes) -> None:
        is_writing.set()
        assert may_end.wait(10)
        append(data)

    monkeypatch.setattr(audit, "_append", slow)
    audit.refused((RequestCode.UPDATE_BROKER_CONFIG, 1, 0, 1, 0, None, {}), "203.0.113.9:1", "no")  # type: ignore[arg-type]
    audit.start()
    await eventually(is_writing.is_set)
    # From another thread: a cancelled wait for a thread blocks the loop until that ends.
    threading.Timer(0.02, may_end.set).start()
    await audit.stop()
    assert disk.read("/a/audit.jsonl").count(b"\n") == 1
