"""``orbitmq quickstart`` shows a cluster at work, and leaves it running for whoever started it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from orbitmq.aio import Message, Producer
from orbitmq.cli.messages.live_counters import LiveCounters
from orbitmq.cli.quickstart.spark import ask_spark
from orbitmq.cli.server.serve import NAMESERVER_PORT
from orbitmq.spark.sessions import java
from support.cli.command import WIDTH, run, run_apart
from support.cli.server_process import ServerProcess, orbitmq
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from pathlib import Path

ANY_PORT = ("--nameserver-port", 0, "--broker-port", 0)
FEW = ("--messages", 300, "--no-spark", "--no-console")
"""What Spark makes of it is in the ring of Spark."""


def is_closed(data: Path) -> bool:
    """Whether the store was closed in an orderly way."""
    return (data / "store" / "checkpoint").exists() and not (data / "store" / "abort").exists()


def test_the_tour_ends_well_and_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        ran = run_apart("quickstart", "--once", "--data", tmp_path, *ANY_PORT, *FEW)
        assert (ran.code, ran.err) == (0, "")
        for text in (
            "300 orders sent and stored",
            "299 orders, each once",
            "failed at first, billed a second later       3 orders",
            "order-7, in %DLQ%quickstart-billing",
            "passed the SQL filter amount >= 900          ",
            "the store verified",
        ):
            assert text in ran.out
        assert "is up" not in ran.out
        assert is_closed(tmp_path)
    assert run("store", "verify", tmp_path / "store").code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_keeps_running_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    async with orbitmq(tmp_path, "quickstart", "--stay", *ANY_PORT, *FEW) as process:
        address = await process.says(r"name server  (\S+)")
        await process.says(r"(orbitmq tail orders) -n " + address)
        async with Producer(address) as producer:
            assert (await producer.send(Message("orders", "hello"))).queue_offset == 0
        assert await process.stopped(number) == 0
    assert process.errors == ""
    assert is_closed(tmp_path / ".orbitmq")


async def test_it_leaves_the_console_serving_and_prints_its_address(tmp_path: Path) -> None:
    few = FEW[:-1]
    async with orbitmq(tmp_path, "quickstart", "--stay", "--console-port", 0, *ANY_PORT, *few) as process:
        address = await process.says(r"console +(http://\S+)")
        overview = await asyncio.to_thread(_get, f"{address}/api/v1/clusters/quickstart/overview")
        assert overview["brokers_up"] == 1
        assert await process.stopped(signal.SIGINT) == 0
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(_get, f"{address}/api/v1/clusters")


def _get(address: str) -> dict[str, int]:
    with urllib.request.urlopen(address, timeout=30) as answer:
        found: dict[str, int] = json.load(answer)
    return found


async def test_it_can_be_stopped_in_the_middle_of_the_tour(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "quickstart", *ANY_PORT, "--messages", 10_000_000) as process:
        await process.says("(OrbitMQ)")
        assert await process.stopped(signal.SIGINT) == 0
    assert process.errors == ""
    assert is_closed(tmp_path / ".orbitmq")


# Where there is no terminal


async def test_without_a_terminal_it_ends_with_its_input(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "quickstart", *ANY_PORT, *FEW, stdin=subprocess.PIPE) as process:
        await process.says("(Ctrl-C stops it)")
        process_input(process).close()
        assert await process.ended() == 0


async def test_without_terminal_and_input_it_ends_by_itself(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "quickstart", *ANY_PORT, *FEW, stdin=subprocess.DEVNULL) as process:
        assert await process.ended() == 0
    assert any("the store verified" in line for line in process.lines)


def test_the_environment_can_ask_for_the_tour_alone(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        ran = run_apart(
            *("quickstart", "--data", tmp_path, *ANY_PORT, *FEW),
            stdin=reading,
            env={**os.environ, **WIDTH, "ORBITMQ_QUICKSTART_ONCE": "1"},
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert (ran.code, ran.err) == (0, "")


def process_input(process: ServerProcess) -> asyncio.StreamWriter:
    stream = process._process.stdin
    assert stream is not None
    return stream


# Ports and places


def test_another_port_is_taken_if_the_usual_one_is_not_free(tmp_path: Path) -> None:
    with contextlib.ExitStack() as taken:
        with contextlib.suppress(OSError):
            taken.enter_context(socket.create_server((HOST, NAMESERVER_PORT)))
        ran = run_apart("quickstart", "--once", "--data", tmp_path, "--broker-port", 0, *FEW)
    assert (ran.code, ran.err) == (0, "")
    assert f"a name server on {HOST}:" in ran.out
    assert f"{HOST}:{NAMESERVER_PORT}" not in ran.out


@pytest.mark.parametrize("option", ["--nameserver-port", "--broker-port"])
def test_a_port_that_was_asked_for_and_is_taken_is_named(tmp_path: Path, option: str) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        ran = run_apart("quickstart", "--once", "--data", tmp_path, *ANY_PORT, option, port)
    assert (ran.code, ran.out) == (1, "")
    assert f"{HOST}:{port}" in ran.err
    assert ran.err.count("\n") == 1


async def test_a_store_that_is_open_elsewhere_is_left_alone(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "serve", *ANY_PORT) as server:
        await server.says(r"name server +(\S+)")
        async with orbitmq(tmp_path, "quickstart", *ANY_PORT) as process:
            assert await process.ended() == 1
        assert process.lines == []
        assert str(tmp_path / ".orbitmq" / "store") in process.errors
        assert process.errors.count("\n") == 1


# Without Spark


async def test_that_spark_cannot_run_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java, "FOLDERS", ())
    out = io.StringIO()
    await ask_spark(Console(file=out, width=60), f"{HOST}:1", "orders", "mark", {"paid": 1})
    assert out.getvalue().startswith("– Spark needs Java 17 or newer and there is none: run 'apt-get install ")
    assert out.getvalue().count("\n") == 1


# Live counters


def test_counters_are_shown_on_a_terminal_and_nothing_of_them_is_left() -> None:
    counters = LiveCounters()
    sent = counters.counter("sent", with_rate=True)
    failed = counters.counter("failed")
    out = io.StringIO()
    with counters.displayed(Console(file=out, force_terminal=True, width=60, color_system=None)):
        sent.add(12_345)
        failed.add()
    last = out.getvalue().rpartition("sent ")[2]
    assert "12,345" in last
    assert "/s" in last
    assert "\x1b[2K" in last


def test_counters_are_not_shown_to_a_file() -> None:
    counters = LiveCounters()
    out = io.StringIO()
    with counters.displayed(Console(file=out)):
        counters.counter("sent").add()
    assert out.getvalue() == ""
