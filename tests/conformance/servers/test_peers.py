"""The harness itself: peers are made once, start when ready, and never outlive their test."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from peers.apache import available, free_broker_port
from peers.cache import filled
from peers.process import RUNNING, PeerError, PeerProcess
from support.paths import TESTS

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBITMQ_PEERS", str(tmp_path / "cache"))


def test_what_was_filled_is_not_filled_again() -> None:
    calls: list[Path] = []
    assert filled("jars", calls.append) == filled("jars", calls.append)
    assert len(calls) == 1


def test_an_interrupted_fill_starts_again_from_an_empty_folder() -> None:
    def interrupted(folder: Path) -> None:
        (folder / "half.jar").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        filled("jars", interrupted)
    folder = filled("jars", lambda folder: (folder / "whole.jar").touch())
    assert sorted(file.name for file in folder.glob("*.jar")) == ["whole.jar"]


def test_of_two_runs_at_once_one_fills_and_the_other_waits_for_it() -> None:
    filling, finish = threading.Event(), threading.Event()
    calls: list[str] = []

    def first(folder: Path) -> None:
        calls.append("first")
        filling.set()
        finish.wait()

    threads = [threading.Thread(target=filled, args=("jars", first))]
    threads[0].start()
    filling.wait()
    threads.append(threading.Thread(target=filled, args=("jars", lambda folder: calls.append("second"))))
    threads[1].start()
    finish.set()
    for thread in threads:
        thread.join()
    assert calls == ["first"]


def test_without_a_jdk_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "JDK" in str(available.__wrapped__())


def test_a_peer_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    orphaning = (
        "import os, pathlib, sys; from peers.process import PeerProcess\n"
        "home = pathlib.Path(sys.argv[1])\n"
        "peer = PeerProcess('peer', ['sleep', '600'], home=home, environment={})\n"
        "print(peer.pid, flush=True); os._exit(1)"
    )
    parent = subprocess.run(
        [sys.executable, "-c", orphaning, str(tmp_path)],
        check=False,
        capture_output=True,
        cwd=TESTS,
    )
    _wait_for(lambda: not _is_alive(int(parent.stdout)))


def test_a_peer_that_ends_early_is_quoted(tmp_path: Path) -> None:
    peer = _shell("echo the disk is full; exit 3", tmp_path)
    with pytest.raises(PeerError, match=r"ended before listening\n(.*\n)*the disk is full"):
        peer.wait_until(lambda: False, what="listening", seconds=60)
    assert peer not in RUNNING


def test_a_peer_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    peer = _shell("sleep 600", tmp_path)
    with pytest.raises(PeerError, match="not listening within"):
        peer.wait_until(lambda: False, what="listening", seconds=0.1)
    assert not peer.running


def test_a_peer_that_does_not_stop_is_killed_with_all_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    peer = _shell(f"trap '' TERM; sleep 600 & echo $! > {child}; wait; wait", tmp_path)
    peer.wait_until(lambda: child.exists() and child.read_text() != "", what="up", seconds=60)
    with pytest.raises(PeerError, match="did not stop"):
        peer.stop(seconds=0.1)
    assert not peer.running
    _wait_for(lambda: not _is_alive(int(child.read_text())))


def test_a_broker_port_is_free_with_its_neighbours() -> None:
    port = free_broker_port()
    with contextlib.ExitStack() as sockets:
        for number in (port - 2, port, port + 1):
            sockets.enter_context(socket.socket()).bind(("", number))


def _shell(script: str, home: Path) -> PeerProcess:
    return PeerProcess("peer", ["sh", "-c", script], home=home, environment={})


def _wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not yet collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
