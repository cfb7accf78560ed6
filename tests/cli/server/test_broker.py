"""``orbitmq broker`` serves until it is told to stop, shows its settings, and says in a sentence why it cannot."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.cli.server.log_setup import LogFormat, set_up_logs
from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.testing import MemoryDisk
from peers.frames import GET_BROKER_CONFIG, ask
from support.broker.requests import bodies, talking_at
from support.cli.command import run
from support.cli.server_process import SMALL_FILES, ServerProcess, brokers_known_at, orbitmq, soon
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WHERE = r"listens on (\S+),"


def conf_at(path: Path, *lines: str) -> Path:
    conf = path / "broker.conf"
    conf.write_text(SMALL_FILES + "\n".join(lines) + "\n")
    return conf


async def address_of(server: ServerProcess) -> str:
    return await server.says(WHERE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_prints_its_address_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    async with orbitmq(tmp_path, "broker", "--port", 0, "--name", "b") as server:
        address = await address_of(server)
        await server.says("(Reachable)")
        assert server.lines == [
            f"The broker b listens on {address}, is known as {address} and registers with no name server\n",
            "Reachable from this machine only (for other machines: --host or bindAddress)\n",
        ]
        assert address.startswith(f"{HOST}:")
        async with talking_at(address) as client:
            await client.stores(b"hello")
            assert bodies(await client.pulls()) == [b"hello"]
        assert (tmp_path / "store" / "abort").exists()
        assert await server.stopped(number) == 0
        assert len(server.lines) == 2
        assert server.errors == ""
    assert not (tmp_path / "store" / "abort").exists()


async def test_a_broker_conf_of_rocketmq_is_loaded_unchanged(tmp_path: Path) -> None:
    conf = conf_at(
        tmp_path,
        "brokerClusterName = TestCluster",
        "brokerName = from-the-file",
        f"bindAddress={HOST}",
        "listenPort=0",
        "flushDiskType = SYNC_FLUSH",
        "deleteWhen = 05",
        f"storePathRootDir={tmp_path / 'there'}",
        "noSuchKey=1",
        "noSuchKeyEither=2",
        "sendThreadPoolQueueCapacity=7",
    )
    async with orbitmq(tmp_path, "broker", "-c", conf) as server:
        body = ask(await address_of(server), GET_BROKER_CONFIG).body.decode()

        for line in ("brokerClusterName=TestCluster", "brokerName=from-the-file", "flushDiskType=SYNC_FLUSH"):
            assert f"{line}\n" in body
        assert await server.stopped() == 0
        assert server.errors == (
            f"orbitmq: {conf}: unknown settings ignored: noSuchKey, noSuchKeyEither\n"
            f"orbitmq: {conf}: settings without effect: sendThreadPoolQueueCapacity\n"
        )
    assert (tmp_path / "there" / "config" / "topics.json").exists()


async def test_options_override_a_settings_file(tmp_path: Path) -> None:
    conf = conf_at(
        tmp_path, "brokerName=file", "listenPort=1", "bindAddress=192.0.2.1", "namesrvAddr=192.0.2.1:1",
        f"storePathRootDir={tmp_path / 'file'}",
    )  # fmt: skip
    said = ("--port", 0, "--host", HOST, "--name", "said", "--data", tmp_path / "said", "-n", f"{HOST}:1")
    async with orbitmq(tmp_path, "broker", "-c", conf, *said) as server:
        body = ask(await address_of(server), GET_BROKER_CONFIG).body.decode()

        assert "brokerName=said\n" in body
        assert f"namesrvAddr={HOST}:1\n" in body
    assert (tmp_path / "said").exists()
    assert not (tmp_path / "file").exists()


def test_settings_are_printed_without_a_start(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, "listenPort=9999", "brokerIP1=192.0.2.7", "deleteWhen=05")
    everything = run("broker", "-p", "-c", conf, "--name", "printed")
    important = run("broker", "-m", "-c", conf, "--name", "printed")

    assert (everything.code, important.code) == (0, 0)
    for printed in (everything, important):
        assert {"listenPort=9999", "brokerIP1=192.0.2.7", "deleteWhen=05", "brokerName=printed"} <= set(
            printed.out.splitlines()
        )
        assert printed.out.splitlines() == sorted(printed.out.splitlines())
    assert "maxIndexNum=10000\n" in everything.out
    assert "maxIndexNum" not in important.out
    assert set(important.out.splitlines()) < set(everything.out.splitlines())
    assert "bindAddress=127.0.0.1\n" in run("broker", "-p").out


def test_a_broker_listens_on_loopback_unless_an_address_is_given(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, "brokerName=b")
    assert {"bindAddress=127.0.0.1", "brokerIP1=127.0.0.1"} <= set(run("broker", "-p", "-c", conf).out.splitlines())
    assert "bindAddress=192.0.2.1\n" in run("broker", "-p", "-c", conf, "--host", "192.0.2.1").out
    conf = conf_at(tmp_path, "bindAddress=0.0.0.0", "brokerIP1=192.0.2.7")
    printed = run("broker", "-p", "-c", conf)
    assert "bindAddress=0.0.0.0\n" in printed.out
    assert printed.err == ""


def test_an_advertised_address_that_does_not_reach_the_broker_is_reported(tmp_path: Path) -> None:
    conf = conf_at(tmp_path, "brokerIP1=192.0.2.7")
    printed = run("broker", "-p", "-c", conf)
    assert printed.code == 0
    assert printed.err.startswith(
        "orbitmq: brokerIP1=192.0.2.7: clients are sent to this address, but the broker listens on 127.0.0.1 only"
    )
    assert run("broker", "-p", "-c", conf, "--host", "0.0.0.0").err == ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("listenPort=high", "listenPort=high"),
        ("brokerRole=SLAVE", "brokerRole=SLAVE"),
        ("brokerId=1", "brokerId=1: a broker with brokerRole=ASYNC_MASTER is a master"),
        ("aclEnable=true", "aclEnable=true: ./conf has no plain_acl.yml; set rocketmqHome"),
        ("tls.server.mode=enforcing", "tls.server.mode=enforcing needs a certificate: set tls.server.certPath"),
        ("authorizationEnabled=true", "authorizationEnabled=true needs authenticationEnabled=true"),
        ("messageDelayLevel=9999999999999d", "messageDelayLevel has '9999999999999d'"),
        ("namesrvAddr=nowhere", "namesrvAddr has 'nowhere'"),
        ("flushDiskType=NEVER", "flushDiskType=NEVER"),
    ],
)
def test_a_wrong_setting_is_an_error_in_one_sentence(tmp_path: Path, line: str, reason: str) -> None:
    ran = run("broker", "-c", conf_at(tmp_path, line))

    assert (ran.code, ran.out) == (1, "")
    assert reason in ran.err
    assert ran.err.count("\n") == 1


def test_a_missing_settings_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    ran = run("broker", "-c", tmp_path / "none.conf")

    assert ran.code == 1
    assert "none.conf" in ran.err
    assert ran.err.count("\n") == 1


async def test_a_port_in_use_is_an_error_with_its_address(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        async with orbitmq(tmp_path, "broker", "--port", port) as server:
            assert await server.ended() == 1
            assert server.lines == []
            assert f"{HOST}:{port}" in server.errors
            assert server.errors.count("\n") == 1
    assert not (tmp_path / "store" / "abort").exists()


async def test_a_store_in_use_is_an_error_with_its_path(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "broker", "--port", 0) as first:
        address = await address_of(first)
        async with orbitmq(tmp_path, "broker", "--port", 0) as second:
            assert await second.ended() == 1
            assert str(tmp_path / "store") in second.errors
            assert second.errors.count("\n") == 1
        async with talking_at(address) as client:
            await client.stores()


async def test_it_registers_with_the_given_name_servers(tmp_path: Path) -> None:
    names = NameServer(NameServerConfig(listen_port=0, bind_address=HOST), disk=MemoryDisk())
    await names.start()
    nameserver = f"{HOST}:{names.port}"
    try:
        async with orbitmq(tmp_path, "broker", "--port", 0, "-n", nameserver, "--name", "b") as server:
            address = await address_of(server)
            await soon(lambda: names.table.brokers)
            assert await asyncio.to_thread(brokers_known_at, nameserver) == {"b": address}
            assert await server.stopped() == 0
            assert names.table.brokers == {}
    finally:
        await names.stop()


async def test_it_stops_at_the_end_of_standard_input(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    async with orbitmq(tmp_path, "broker", "--port", 0, "--until-eof", stdin=pipe) as server:
        await address_of(server)
        assert server._process.stdin is not None
        server._process.stdin.write(b"what is written there is nothing to it\n")
        await server._process.stdin.drain()
        server._process.stdin.close()

        assert await server.ended() == 0
    assert not (tmp_path / "store" / "abort").exists()


# Logs


@pytest.fixture
def logging_kept() -> Iterator[None]:
    """What is set up for the command is taken back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("orbitmq", "orbitmq.remoting")}
    yield
    root.handlers[:], root.level = handlers, level
    for name, one in levels.items():
        logging.getLogger(name).setLevel(one)


@pytest.mark.usefixtures("logging_kept")
def test_a_json_log_has_an_object_in_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.JSON)
    log = logging.getLogger("orbitmq.broker")
    log.info("plain %d", 1)
    log.warning("lines\nand \ud800 what cannot be written")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    assert [(line["level"], line["source"]) for line in lines] == [
        ("info", "broker"), ("warning", "broker"), ("error", "broker"),
    ]  # fmt: skip
    assert [line["message"] for line in lines] == ["plain 1", "lines\nand ? what cannot be written", "failed"]
    assert "ValueError: why" in lines[2]["exception"]
    assert all(line["time"].endswith("+00:00") for line in lines)


@pytest.mark.usefixtures("logging_kept")
def test_a_text_log_has_level_and_component(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(LogFormat.TEXT)
    logging.getLogger("orbitmq.store").warning("the disk is %s", "slow")
    logging.getLogger("orbitmq.remoting").info("not worth a line")
    logging.getLogger("elsewhere").info("neither")

    assert capsys.readouterr().err.endswith(" WARNING store: the disk is slow\n")
