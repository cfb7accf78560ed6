"""Three controllers and three etcd members as processes, which are killed and paused: at most one controller leads.

All controllers are polled all the time, for who claims to lead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from peers.etcd import EtcdCluster, available
from peers.frames import ask
from peers.ports import free_port
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not os.environ.get("ORBITMQ_LONG"), reason="a long test: set ORBITMQ_LONG=1")

log = logging.getLogger(__name__)

GET_METADATA_INFO = 1005
PATIENCE = 30.0
LEASE = 5.0


class Controllers:
    """Three controllers on one etcd, and a watch on their claims to lead."""

    def __init__(self, home: Path, etcd: EtcdCluster) -> None:
        self.home = home
        self.etcd = etcd
        self.addresses = {f"n{number}": f"127.0.0.1:{free_port()}" for number in range(3)}
        self.processes: dict[str, PeerProcess] = {}
        self.paused: set[str] = set()
        self.leaders: frozenset[str] = frozenset()
        self.doubles: list[frozenset[str]] = []
        self._stopped = threading.Event()
        self._watch = threading.Thread(target=self._poll)

    def start(self, name: str) -> None:
        folder = self.home / name
        folder.mkdir(exist_ok=True)
        peers = ";".join(f"{peer}-{address}" for peer, address in self.addresses.items())
        (folder / "controller.conf").write_text(
            f"controllerStoreType=etcd\netcdEndpoints={','.join(self.etcd.urls)}\ncontrollerDLegerPeers={peers}\n"
            f"controllerDLegerSelfId={name}\ncontrollerStorePath={folder / 'store'}\n",
            "utf-8",
        )
        command = [sys.executable, "-m", "orbitmq", "controller", "-c", str(folder / "controller.conf")]
        self.processes[name] = PeerProcess(name, command, home=folder, environment={})

    def signal(self, name: str, number: int) -> None:
        (self.paused.add if number == signal.SIGSTOP else self.paused.discard)(name)
        os.killpg(self.processes[name].pid, number)

    def leader(self) -> str:
        (name,) = self.leaders
        return name

    def __enter__(self) -> Self:
        for name in self.addresses:
            self.start(name)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._watch.join()
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            process.kill()

    def _poll(self) -> None:
        while not self._stopped.is_set():
            # One after the other: a change between two answers may show two leaders, but not twice in a row.
            found = frozenset(name for name in self.addresses if self._claims(name))
            if len(found) > 1 and frozenset(name for name in found if self._claims(name)) == found:
                self.doubles.append(found)
            self.leaders = found
            time.sleep(0.02)

    def _claims(self, name: str) -> bool:
        if name in self.paused:
            return False
        try:
            return ask(self.addresses[name], GET_METADATA_INFO).fields.get("isLeader") == "true"
        except OSError:
            return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    if reason := available():
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("etcd-processes")
    with EtcdCluster(home, members=3) as etcd, Controllers(home, etcd) as cluster:
        until(lambda: len(cluster.leaders) == 1)
        yield cluster


def until(condition: Callable[[], object]) -> float:
    """Seconds until a condition held."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < PATIENCE, "it did not happen"
        time.sleep(0.01)
    return time.monotonic() - begin


def test_whatever_is_killed_or_paused_at_most_one_controller_leads(cluster: Controllers) -> None:
    taken: dict[str, float] = {}
    old = cluster.leader()
    cluster.processes[old].kill()
    taken["leader killed"] = until(lambda: cluster.leaders and cluster.leader() != old)
    cluster.start(old)

    old = cluster.leader()
    cluster.signal(old, signal.SIGSTOP)
    taken["leader paused"] = until(lambda: cluster.leaders and cluster.leader() != old)
    cluster.signal(old, signal.SIGCONT)
    until(lambda: len(cluster.leaders) == 1)

    old = cluster.leader()
    cluster.processes[old].stop(seconds=PATIENCE)
    taken["leader stopped"] = until(lambda: cluster.leaders and cluster.leader() != old)
    cluster.start(old)

    cluster.etcd.pause()
    taken["etcd paused, leader steps down"] = until(lambda: not cluster.leaders)
    time.sleep(20 - taken["etcd paused, leader steps down"])
    assert not cluster.leaders
    cluster.etcd.resume()
    taken["etcd resumed, one leads"] = until(lambda: len(cluster.leaders) == 1)

    cluster.etcd.processes[0].kill()
    taken["one etcd member lost"] = until(lambda: len(cluster.leaders) == 1)
    time.sleep(2 * LEASE)
    assert len(cluster.leaders) == 1
    cluster.etcd.processes[1].kill()
    taken["majority of etcd lost, leader steps down"] = until(lambda: not cluster.leaders)
    assert taken["etcd paused, leader steps down"] <= LEASE
    assert taken["majority of etcd lost, leader steps down"] <= LEASE
    assert not cluster.doubles
    for what, seconds in taken.items():
        log.info("%s: %.1f s", what, seconds)
