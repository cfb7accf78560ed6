"""``orbitmq serve`` runs a whole cluster: it says where it is, keeps its brokers running, and ends with them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from orbitmq.cli.server import supervisor
from orbitmq.protocol.codes import ResponseCode
from peers.frames import GET_BROKER_CONFIG, ask
from support.broker.requests import HOLD_MS, bodies, pull_request, talking_at
from support.cli.server_process import SMALL_FILES, ServerProcess, brokers_known_at, is_running, orbitmq, soon
from support.remoting_harness import HOST

ANY_PORT = ("--nameserver-port", 0, "--broker-port", 0)


def conf_at(path: Path, *lines: str) -> Path:
    conf = path / "broker.conf"
    conf.write_text(SMALL_FILES + "\n".join(lines) + "\n")
    return conf


async def addresses_of(server: ServerProcess) -> tuple[str, str]:
    """Where its name server and its broker are."""
    return await server.says(r"name server +(\S+)"), await server.says(r"broker +(\S+)")


async def known(nameserver: str, count: int) -> dict[str, str]:
    """The brokers that a name server knows, when there are so many."""
    await soon(lambda: len(brokers_known_at(nameserver)) == count)
    return brokers_known_at(nameserver)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_prints_its_addresses_and_persists_messages(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    async with orbitmq(tmp_path, "serve", *ANY_PORT, "--data", data) as server:
        nameserver, broker = await addresses_of(server)
        assert list((await known(nameserver, 1)).values()) == [broker]
        assert await server.says(r"data +(\S+)") == str(data / "store")
        await server.says(rf'(setNamesrvAddr\("{nameserver}"\))')
        async with talking_at(broker) as client:
            await client.stores(b"hello")
        assert await server.stopped(number) == 0
        assert "Traceback" not in server.errors
    assert not (data / "store" / "abort").exists()
    async with orbitmq(tmp_path, "serve", *ANY_PORT, "--data", data) as server:
        _, broker = await addresses_of(server)
        async with talking_at(broker) as client:
            assert bodies(await client.pulls()) == [b"hello"]


async def test_pulls_that_wait_are_answered_when_it_stops(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "serve", *ANY_PORT) as server:
        _, broker = await addresses_of(server)
        async with talking_at(broker) as client:
            await client.stores(queueId=1)
            waiting = client.posts(pull_request(hold_ms=HOLD_MS))
            await client.pass_time()
            assert await server.stopped() == 0
            assert (await client.answer_to(waiting)).code == ResponseCode.PULL_NOT_FOUND
    assert (tmp_path / ".orbitmq" / "store" / "checkpoint").exists()


async def test_options_override_a_settings_file(tmp_path: Path) -> None:
    conf = conf_at(
        tmp_path, "brokerName=file", "brokerClusterName=C1", f"bindAddress={HOST}", "listenPort=1", "noSuchKey=1",
        f"storePathRootDir={tmp_path / 'file'}",
    )  # fmt: skip
    said = ("-c", conf, *ANY_PORT)
    async with orbitmq(tmp_path, "serve", *said) as server:
        nameserver, broker = await addresses_of(server)
        body = ask(broker, GET_BROKER_CONFIG).body.decode()
        assert "brokerClusterName=C1\n" in body
        assert f"storePathRootDir={tmp_path / 'file'}\n" in body
        assert await known(nameserver, 1) == {"file": broker}
        assert await server.stopped() == 0
        assert server.errors.count("noSuchKey") == 1
    async with orbitmq(tmp_path, "serve", *said, "--data", tmp_path / "said") as server:
        _, broker = await addresses_of(server)
        assert f"storePathRootDir={tmp_path / 'said' / 'store'}\n" in ask(broker, GET_BROKER_CONFIG).body.decode()


async def test_a_port_in_use_is_an_error_with_its_address(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        for said in (
            ("--nameserver-port", port, "--broker-port", 0),
            ("--nameserver-port", 0, "--broker-port", port),
        ):
            async with orbitmq(tmp_path, "serve", *said) as server:
                assert await server.ended() == 1
                assert server.lines == []
                assert f"{HOST}:{port}" in server.errors
                assert "Traceback" not in server.errors
    assert not (tmp_path / ".orbitmq" / "store" / "abort").exists()


async def test_a_json_log_has_an_object_in_every_line(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "serve", *ANY_PORT, "--brokers", 2, "--log-format", "json") as server:
        nameserver = await server.says(r"name server +(\S+)")
        await known(nameserver, 2)
        assert await server.stopped() == 0
        lines = [json.loads(line) for line in server.errors.splitlines()]

    assert {"time", "level", "source", "message"} <= set.intersection(*(set(line) for line in lines))
    assert any(line["source"] == "broker" and "registered" in line["message"] for line in lines)


@pytest.mark.parametrize("brokers", [1, 2])
async def test_a_settings_file_without_an_address_leaves_the_cluster_on_loopback(
    tmp_path: Path, brokers: int
) -> None:
    conf = conf_at(tmp_path, "brokerName=b")
    async with orbitmq(
        tmp_path, "serve", *ANY_PORT, "-c", conf, "--data", tmp_path / "data", "--brokers", brokers
    ) as server:
        nameserver = await server.says(r"name server +(\S+)")
        assert nameserver.startswith(f"{HOST}:")
        assert await server.says("reachable +from (this machine only)")
        addresses = list((await known(nameserver, brokers)).values())
        assert all(address.startswith(f"{HOST}:") for address in addresses)
        for pid in [server.pid, *server.children()]:
            assert listening_hosts(pid) <= {HOST}


async def test_the_banner_says_that_other_machines_can_connect(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, "bindAddress=0.0.0.0", "brokerIP1=127.0.0.1")
    async with orbitmq(tmp_path, "serve", *ANY_PORT, "-c", conf, "--data", tmp_path / "data") as server:
        assert await server.says("reachable +from (every machine that can connect to this one)")
        assert listening_hosts(server.pid) == {"0.0.0.0"}


# Several brokers


async def test_several_brokers_have_a_process_each_and_one_that_dies_comes_back(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, "brokerName=b", f"bindAddress={HOST}", "flushDiskType=SYNC_FLUSH", "noSuchKey=1")
    data = tmp_path / "data"
    async with orbitmq(tmp_path, "serve", *ANY_PORT, "--data", data, "-c", conf, "--brokers", 3) as server:
        nameserver = await server.says(r"name server +(\S+)")
        brokers = await known(nameserver, 3)
        assert set(brokers) == {"b", "b-1", "b-2"}
        assert len(set(brokers.values())) == 3
        for name, address in brokers.items():
            async with talking_at(address) as client:
                await client.stores(name.encode())
        pids = server.children()
        assert len(pids) == 3
        (killed,) = (pid for pid in pids if _runs(pid, "b-1"))
        os.kill(killed, signal.SIGKILL)
        await soon(lambda: brokers_known_at(nameserver).get("b-1") not in {None, brokers["b-1"]})
        again = brokers_known_at(nameserver)
        assert again == {**brokers, "b-1": again["b-1"]}
        async with talking_at(again["b-1"]) as client:
            assert bodies(await client.pulls()) == [b"b-1"]
        pids = server.children()
        assert len(pids) == 3
        assert await server.stopped() == 0
        assert "supervisor: broker b-1 ended with exit code -9, restart in" in server.errors
        assert server.errors.count("noSuchKey") == 1
        assert not any(map(is_running, pids))
    assert sorted(os.listdir(data)) == ["store", "store-1", "store-2"]
    assert not any((data / name / "abort").exists() for name in os.listdir(data))


async def test_brokers_stop_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "serve", *ANY_PORT, "--data", tmp_path / "data", "--brokers", 2) as server:
        nameserver = await server.says(r"name server +(\S+)")
        await known(nameserver, 2)
        pids = server.children()
        assert len(pids) == 2
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL
        await soon(lambda: not any(map(is_running, pids)))
    assert not any((tmp_path / "data" / name / "abort").exists() for name in ("store", "store-1"))


async def test_a_failed_start_of_a_broker_is_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "MAX_BACKOFF", 0.001)
    start = asyncio.create_subprocess_exec
    tries = []

    async def start_after_a_while(*command: str, **options: Any) -> asyncio.subprocess.Process:
        tries.append(command)
        if len(tries) <= 2:
            raise BlockingIOError(errno.EAGAIN, "no process left")
        return await start(*command, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_after_a_while)
    running = supervisor.Supervisor([supervisor.Child("b", ["broker", "-m"])])
    running.start()
    await soon(lambda: "exit code 0" in caplog.text)
    await running.stop()

    assert caplog.text.count("supervisor: broker b could not be started (no process left), restart in 0 s") == 2


async def test_several_brokers_cannot_share_a_commit_log(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, f"storePathCommitLog={tmp_path / 'log'}")
    async with orbitmq(tmp_path, "serve", *ANY_PORT, "-c", conf, "--brokers", 2) as server:
        assert await server.ended() == 1
        assert "several brokers cannot share a commit log" in server.errors
        assert server.errors.count("\n") == 1
    assert not (tmp_path / "log").exists()


def listening_hosts(pid: int) -> set[str]:
    """The IPv4 addresses on which a process listens."""
    links = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_, inode = line.split()[:10]
        if state == "0A" and inode in sockets:
            found.add(socket.inet_ntoa(bytes.fromhex(local.partition(":")[0])[::-1]))
    return found


def _runs(pid: int, name: str) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return name.encode() in file.read().split(b"\0")
