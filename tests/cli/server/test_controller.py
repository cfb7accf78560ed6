"""``orbitmq controller -c FILE`` runs a controller, and its verbs ask one."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from peers.frames import ask
from peers.ports import free_port
from support.cli.command import WIDTH, run
from support.metrics.endpoint_text import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GET_CONTROLLER_CONFIG = 1010


@contextlib.contextmanager
def started(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process of its own, and the address in the line that it has printed."""
    environment = {**os.environ, **WIDTH, "HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-m", "orbitmq", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            match = re.match(r"The controller listens on (\S+)", process.stdout.readline())
            yield process, "" if match is None else match[1]
        finally:
            process.kill()


def test_it_listens_where_its_own_peer_says_and_answers_its_verbs(tmp_path: Path) -> None:
    conf, address = tmp_path / "controller.conf", f"127.0.0.1:{free_port()}"
    conf.write_text(
        f"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-{address}\ncontrollerDLegerSelfId=n0\n"
        f"controllerStorePath={tmp_path / 'store'}\nmappedFileSize=1024\nnoSuchKey=1\n"
    )
    with started(tmp_path, "controller", "-c", str(conf)) as (process, listens):
        assert listens == address
        printed = run("controller", "show", "-a", address, "-o", "json")
        assert printed.json == {"group": "g", "leader": "n0", "leaderAddress": address, "peers": f"n0:{address};"}
        why = run("controller", "why", "broker-a", "-a", address)
        assert (why.code, why.err.count("does not exist")) == (3, 1)
        assert f"configStorePath={conf}\n".encode() in ask(address, GET_CONTROLLER_CONFIG).body
        process.terminate()
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err.count("noSuchKey"), err.count("mappedFileSize")) == (0, 1, 1), out
    assert (tmp_path / "store" / "events.log").exists()


def test_it_listens_on_loopback_and_a_port_of_the_command_line(tmp_path: Path) -> None:
    with started(tmp_path, "controller", "--port", "0", "--data", str(tmp_path / "d")) as (process, listens):
        assert listens.startswith("127.0.0.1:")
        with started(tmp_path, "controller", "--port", "0", "--data", str(tmp_path / "d")) as (second, _):
            _, err = second.communicate(timeout=60)
            assert second.returncode == 1
            assert "another controller uses" in err
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_it_serves_metrics(tmp_path: Path) -> None:
    options = ("--port", "0", "--data", str(tmp_path / "d"), "--metrics-port", "0")
    with started(tmp_path, "controller", *options) as (process, _):
        assert process.stdout is not None
        _, said = process.stdout.readline(), process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", said)
        assert match is not None, said
        assert "\nrole{" in fetch(int(match[1]))


def test_a_name_server_runs_one_with_the_keys_of_its_file(tmp_path: Path) -> None:
    conf, address = tmp_path / "namesrv.conf", f"127.0.0.1:{free_port()}"
    conf.write_text(
        f"listenPort=0\nenableControllerInNamesrv=true\ncontrollerDLegerPeers=n0-{address}\n"
        f"controllerDLegerSelfId=n0\ncontrollerStorePath={tmp_path / 'store'}\n"
    )
    with started(tmp_path, "nameserver", "-c", str(conf)) as (process, listens):
        assert listens == address
        assert f"configStorePath={conf}.controller\n".encode() in ask(address, GET_CONTROLLER_CONFIG).body
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")


def test_errors_are_one_sentence(tmp_path: Path) -> None:
    for sets, reason in (
        (("--set", "controllerDLegerPeers=n0-h:1;n1-h:2"), "controllerStoreType=file"),
        (("--set", "controllerStoreType=etcd", "--host", "0.0.0.0"), "controllerAddress"),
        (("--set", "noSuch=1"), "no such setting"),
    ):
        ran = run("controller", "--data", str(tmp_path), *sets)
        assert ran.code == 1
        assert reason in ran.err
        assert ran.err.count("\n") == 1
