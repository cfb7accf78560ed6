"""``orbitmq serve --replicas``: a master and its slave, each in a process of its own and restarted if it dies."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from orbitmq.aio import Message, Producer, SendStatus
from orbitmq.protocol.bodies import ClusterInfo, HARuntimeInfo
from orbitmq.protocol.codes import RequestCode
from peers.frames import ask
from peers.ports import free_port
from support.cli.server_process import orbitmq, soon

if TYPE_CHECKING:
    from pathlib import Path

SYNC = ("--set", "brokerRole=SYNC_MASTER", "--set", "inSyncReplicas=2", "--set", "slaveTimeout=30000")


def addresses(nameserver: str) -> dict[int, str]:
    """Addresses of the replicas by broker id."""
    info = ClusterInfo.decode(ask(nameserver, RequestCode.GET_BROKER_CLUSTER_INFO).body)
    return {number: one for group in info.broker_addr_table.values() for number, one in group.broker_addrs.items()}


def in_sync(master: str) -> int:
    answer = ask(master, RequestCode.GET_BROKER_HA_STATUS)
    return HARuntimeInfo.decode(answer.body).in_sync_slave_nums


async def test_serve_with_replicas_runs_a_master_and_its_slave(tmp_path: Path) -> None:
    port = free_port(-2, 1, 8, 10)
    async with orbitmq(
        *(tmp_path, "serve", "--nameserver-port", 0, "--broker-port", port, "--data", tmp_path / "data"),
        *("--replicas", 2, "--grpc-port", 0, *SYNC),
    ) as server:
        nameserver = await server.says(r"name server +(\S+)")
        assert await server.says(r"broker +(\S+), slave") == f"127.0.0.1:{port + 10}"
        await soon(lambda: addresses(nameserver).keys() == {0, 1})
        master = addresses(nameserver)[0]
        await soon(lambda: in_sync(master) == 1)
        async with Producer(nameserver, group="p", send_msg_timeout=40_000) as producer:
            assert (await producer.send(Message("orders", b"1"))).status is SendStatus.SEND_OK
            victim = next(pid for pid in server.children() if b"brokerRole=SLAVE" in _command(pid))
            os.kill(victim, signal.SIGKILL)
            assert (await producer.send(Message("orders", b"2"))).status is SendStatus.SEND_OK


def _command(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()
