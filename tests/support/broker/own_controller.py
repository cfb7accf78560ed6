"""``orbitmq controller`` as a process that is killed and started again on its state."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from peers.ports import free_port
from support.broker.process_network import ANNOUNCED, CONTROLLER
from support.cli.server_process import ServerProcess, orbitmq
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from pathlib import Path

    from support.broker.process_network import ProcessNetwork

QUICK = ("scanNotActiveBrokerInterval=200", "scanInactiveMasterInterval=500")
"""Settings for tests that do not want to wait for it."""


class OwnController:
    """The controller, its files and its address."""

    def __init__(self, home: Path, *settings: str, network: ProcessNetwork | None = None) -> None:
        home.mkdir(parents=True)
        self._home = home
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        """Address at which tests ask it."""
        self.own_id = "n0"
        self.peers = f"n0-{HOST if network is None else ANNOUNCED}:{self.port}"
        """All controllers, this one alone unless a test says otherwise."""
        self._network = network
        self._exit = contextlib.AsyncExitStack()
        self.process: ServerProcess | None = None
        self.settings = settings

    async def start(self) -> None:
        if self._network is not None:
            await self._network.relay(CONTROLLER, self.port)
        conf = self._home / "controller.conf"
        lines = (
            *("controllerDLegerGroup=g1", f"controllerDLegerPeers={self.peers}"),
            f"controllerDLegerSelfId={self.own_id}",
            *(f"bindAddress={HOST}", f"controllerStorePath={self._home / 'state'}", *self.settings),
        )
        conf.write_text("\n".join(lines) + "\n")
        self.process = await self._exit.enter_async_context(orbitmq(self._home, "controller", "-c", conf))
        if self._network is not None:
            self._network.name(self.process.pid, CONTROLLER)
        await self.process.says(r"(listens)")

    async def kill(self) -> None:
        assert self.process is not None
        await self.process.stopped(signal.SIGKILL)
        await self.close()

    async def close(self) -> None:
        self.process = None
        await self._exit.aclose()
        self._exit = contextlib.AsyncExitStack()
