"""A master in controller mode: a controller, a name server and the broker, each a process on this machine."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING

from bench.server.systems import ORBITMQ, started
from orbitmq.protocol.bodies import BrokerReplicasInfo
from orbitmq.protocol.codes import RequestCode
from peers.frames import ask
from peers.ports import free_port, is_listening
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.server.systems import Server

CONTROLLED = {
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    # Pairs are halted while others are measured, which must neither fence the master nor shrink the set.
    "controllerHeartBeatTimeoutMills": "3600000",
    "haMaxTimeSlaveNotCatchup": "3600000",
}
_CONTROLLER = "controller-address"
_START_SECONDS = 60


def start_controlled(home: Path, settings: Mapping[str, str]) -> Server:
    """The first broker of a group, which its controller names as the master."""
    home.mkdir(parents=True)
    with contextlib.ExitStack() as undo:
        others = []
        addresses = {}
        for name, options in (("controller", ("--data", str(home / "controller-state"))), ("nameserver", ())):
            port = free_port()
            folder = home / name
            folder.mkdir()
            command = [sys.executable, "-m", "orbitmq", name, "--port", str(port), *options]
            process = PeerProcess(f"orbitmq {name}", command, home=folder, environment={})
            undo.callback(process.kill)
            others.append(process)
            addresses[name] = f"127.0.0.1:{port}"
        for process, address in zip(others, addresses.values(), strict=True):
            process.wait_until(functools.partial(is_listening, address), what="listening", seconds=_START_SECONDS)
        (home / _CONTROLLER).write_text(addresses["controller"], "ascii")
        broker_port = free_port(-2, 1)
        own = {
            **settings,
            "controllerAddr": addresses["controller"],
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(broker_port),
            "storePathRootDir": str(home / "store"),
            "storePathCommitLog": str(home / "store" / "commitlog"),
            "fileReservedTime": "876000",
        }
        conf = home / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in own.items()), "utf-8")
        command = [sys.executable, "-m", "orbitmq", "broker", "-c", str(conf), "-n", addresses["nameserver"]]
        server = started(
            ORBITMQ,
            others,
            lambda: PeerProcess("orbitmq broker", command, home=home, environment={}),
            addresses["nameserver"],
            f"127.0.0.1:{broker_port}",
            home / "store",
            None,
            _START_SECONDS,
        )
        undo.pop_all()
    return server


def set_size(home: Path, broker_name: str) -> int:
    """Replicas in the sync state set of such a master, by its controller."""
    answer = ask(
        controller_of(home), RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'["%s"]' % broker_name.encode()
    )
    table = BrokerReplicasInfo.decode(answer.body).replicas_info_table if answer.body else {}
    found = table.get(broker_name)
    return 0 if found is None else len(found.in_sync_replicas)


def controller_of(home: Path) -> str:
    """The address of the controller of a master that was started in this folder."""
    return (home / _CONTROLLER).read_text("ascii")
