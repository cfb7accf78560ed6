"""``orbitmq controller`` as a process that is killed and started again on its state."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

from peers.ports import free_port
from support.cli.server_process import ServerProcess, orbitmq
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ("scanNotActiveBrokerInterval=200", "scanInactiveMasterInterval=500")
"""Settings for tests that do not want to wait for it."""


class OwnController:
    """The controller, its files and its address."""

    def __init__(self, home: Path, *settings: str) -> None:
        home.mkdir(parents=True)
        self._home = home
        self.address = f"{HOST}:{free_port()}"
        self._exit = contextlib.AsyncExitStack()
        self.process: ServerProcess | None = None
        self.settings = settings

    async def start(self) -> None:
        conf = self._home / "controller.conf"
        lines = (
            *("controllerDLegerGroup=g1", f"controllerDLegerPeers=n0-{self.address}", "controllerDLegerSelfId=n0"),
            *(f"controllerStorePath={self._home / 'state'}", *self.settings),
        )
        conf.write_text("\n".join(lines) + "\n")
        self.process = await self._exit.enter_async_context(orbitmq(self._home, "controller", "-c", conf))
        await self.process.says(r"(listens)")

    async def kill(self) -> None:
        assert self.process is not None
        await self.process.stopped(signal.SIGKILL)
        await self.close()

    async def close(self) -> None:
        self.process = None
        await self._exit.aclose()
        self._exit = contextlib.AsyncExitStack()
