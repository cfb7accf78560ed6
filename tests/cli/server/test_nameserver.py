"""``orbitmq nameserver`` listens until it is told to stop, and says in one sentence why it cannot."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from peers.frames import ask
from support.cli.command import WIDTH, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GET_NAMESRV_CONFIG = 319


@contextlib.contextmanager
def started(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process of its own, and the line it has printed."""
    command = [sys.executable, "-m", "orbitmq", "nameserver", *arguments]
    environment = {**os.environ, **WIDTH, "HOME": str(home)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "--port", "0") as (process, line):
        address = line.rpartition(" ")[2].strip()
        assert address.startswith("127.0.0.1:")
        assert b"listenPort=0\n" in ask(address, GET_NAMESRV_CONFIG).body
        assert process.stdout is not None
        assert process.stdout.readline() == (
            "Reachable from this machine only (for other machines: --host or bindAddress)\n"
        )
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_it_loads_a_settings_file(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=0\nbindAddress=127.0.0.1\nenableTopicList=false\nnoSuchKey=1\n")
    with started(tmp_path, "-c", str(conf)) as (process, line):
        body = ask(line.rpartition(" ")[2].strip(), GET_NAMESRV_CONFIG).body
        assert b"enableTopicList=false\n" in body
        assert f"configStorePath={conf}\n".encode() in body
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert "noSuchKey" in err


def test_settings_are_printed_without_a_start(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=9999\n")
    ran = run("nameserver", "-p", "-c", conf)
    assert ran.code == 0
    assert "listenPort=9999\n" in ran.out
    ran = run("nameserver", "-p", "--port", "1234", "--host", "192.0.2.1")
    assert "listenPort=1234\n" in ran.out
    assert "bindAddress=192.0.2.1\n" in ran.out
    assert "bindAddress=127.0.0.1\n" in run("nameserver", "-p").out


def test_a_name_server_listens_on_loopback_unless_an_address_is_given(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=0\n")
    assert "bindAddress=127.0.0.1\n" in run("nameserver", "-p", "-c", conf).out
    assert "bindAddress=192.0.2.1\n" in run("nameserver", "-p", "-c", conf, "--host", "192.0.2.1").out
    with started(tmp_path, "-c", str(conf)) as (_, line):
        assert line.startswith("The name server listens on 127.0.0.1:")
    conf.write_text("listenPort=0\nbindAddress=0.0.0.0\n")
    with started(tmp_path, "-c", str(conf)) as (process, line):
        assert line.startswith("The name server listens on 0.0.0.0:")
        assert process.stdout is not None
        assert "every machine that can connect to this one" in process.stdout.readline()


def test_errors_are_one_sentence(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=high\n")
    for arguments, reason in ((("-c", conf), "listenPort=high"), (("-c", tmp_path / "none"), "none")):
        ran = run("nameserver", *arguments)
        assert ran.code == 1
        assert reason in ran.err
        assert ran.err.count("\n") == 1


def test_a_port_in_use_is_an_error_with_its_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started(tmp_path, "--port", str(port)) as (process, line):
            _, err = process.communicate(timeout=60)
            assert line == ""
            assert process.returncode == 1
            assert f"127.0.0.1:{port}" in err
            assert err.count("\n") == 1
