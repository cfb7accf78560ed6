"""``orbitmq serve --replicas 3``: a controller and brokers, one of which takes over when the master is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.aio import Consumer, ConsumeResult, Message, OrbitMQError, Producer, SendStatus
from orbitmq.cli.server.serve import main
from orbitmq.protocol.bodies.replication import BrokerReplicasInfo
from orbitmq.protocol.codes import RequestCode
from peers.frames import ask
from peers.ports import free_port
from support.cli.server_process import SMALL_FILES, orbitmq, soon

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.aio import ReceivedMessage

PATIENCE = 20


async def test_serve_with_three_replicas_goes_on_when_the_master_is_killed(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(SMALL_FILES)
    port = free_port(-2, 1, 8, 10, 11, 18, 20, 21)
    async with orbitmq(
        *(tmp_path, "serve", "--nameserver-port", 0, "--controller-port", 0, "--broker-port", port),
        *("--data", tmp_path / "data", "--replicas", 3, "--grpc-port", 0, "-c", conf),
    ) as server:
        nameserver = await server.says(r"name server +(\S+)")
        controller = await server.says(r"controller +(\S+)")
        pid = int(await server.says(r"broker +\S+, pid (\d+), master"))
        assert pid in server.children()
        await soon(lambda: in_sync(controller) == 3)
        async with Producer(nameserver, group="p") as producer:
            sent = [await stored(producer, b"%d" % number) for number in range(20)]
            os.kill(pid, signal.SIGKILL)
            sent += [await stored(producer, b"%d" % number) for number in range(20, 40)]
        # The supervisor starts the old master again, which copies what it missed.
        await soon(lambda: in_sync(controller) == 3)
        await everything_is_consumed(nameserver, set(sent))


def in_sync(controller: str) -> int:
    """Replicas in the sync state set of the only group that are alive."""
    body = json.dumps([socket.gethostname()]).encode()
    answer = ask(controller, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
    info = BrokerReplicasInfo.decode(answer.body) if answer.body else BrokerReplicasInfo()
    return sum(bool(one.alive) for group in info.replicas_info_table.values() for one in group.in_sync_replicas)


async def stored(producer: Producer, body: bytes) -> bytes:
    """Send until it is acknowledged."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                if (await producer.send(Message("orders", body))).status is SendStatus.SEND_OK:
                    return body
            except OrbitMQError:
                await asyncio.sleep(0.05)


async def everything_is_consumed(nameserver: str, sent: set[bytes]) -> None:
    found = set[bytes]()
    is_complete = asyncio.Event()
    consumer = Consumer(nameserver, group="c", start_from="earliest")

    @consumer.on("orders")
    async def _(message: ReceivedMessage) -> ConsumeResult:
        found.add(message.body)
        if found >= sent:
            is_complete.set()
        return ConsumeResult.SUCCESS

    async with consumer, asyncio.timeout(PATIENCE):
        await is_complete.wait()


def test_one_broker_has_nobody_that_takes_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--failover", "--data", str(tmp_path)])
    assert "give --replicas 3" in capsys.readouterr().err


def test_data_of_a_group_with_failover_are_not_served_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "controller").mkdir()
    for options in ([], ["--replicas", "2"], ["--replicas", "3", "--no-failover"]):
        with pytest.raises(SystemExit):
            main(["--data", str(tmp_path), *options])
        assert "give --failover" in capsys.readouterr().err
