"""etcd, unmodified, as a cluster of processes on this machine: Debian's ``etcd-server``."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import urllib.request
from typing import TYPE_CHECKING, Self

from peers.ports import free_port
from peers.process import PeerProcess

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_START_SECONDS = 30


def available() -> str | None:
    """None if etcd can be run here, otherwise the reason in one sentence."""
    if shutil.which("etcd") is None:
        return "etcd is not installed: apt-get install etcd-server"
    return None


class EtcdCluster:
    """Members that answer when this is made. ``urls`` are their client addresses."""

    def __init__(self, home: Path, members: int = 1, *, certificate: tuple[Path, Path] | None = None) -> None:
        """``certificate`` and its key, in PEM, are for TLS with clients."""
        clients = [free_port() for _ in range(members)]
        peers = [free_port() for _ in range(members)]
        scheme = "http" if certificate is None else "https"
        self.urls = [f"{scheme}://127.0.0.1:{port}" for port in clients]
        everyone = ",".join(f"m{number}=http://127.0.0.1:{port}" for number, port in enumerate(peers))
        self.processes: list[PeerProcess] = []
        for number in range(members):
            folder = home / f"m{number}"
            folder.mkdir(parents=True)
            options = {
                "name": f"m{number}",
                "data-dir": str(folder / "data"),
                "listen-client-urls": self.urls[number],
                "advertise-client-urls": self.urls[number],
                "listen-peer-urls": f"http://127.0.0.1:{peers[number]}",
                "initial-advertise-peer-urls": f"http://127.0.0.1:{peers[number]}",
                "initial-cluster": everyone,
                # Other programs of this machine have no part in whether a test passes.
                "heartbeat-interval": "100",
                "election-timeout": "1000",
            }
            if certificate is not None:
                options |= {"cert-file": str(certificate[0]), "key-file": str(certificate[1])}
            command = ["etcd", *(f"--{key}={value}" for key, value in options.items())]
            self.processes.append(PeerProcess(f"etcd m{number}", command, home=folder, environment={}))
        for process, url in zip(self.processes, self.urls, strict=True):
            process.wait_until(lambda url=url: _is_healthy(url), what="healthy", seconds=_START_SECONDS)  # type: ignore[misc]

    def pause(self) -> None:
        """Stop all members without ending them."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for process in self.processes:
            if process.running:
                os.killpg(process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.resume()
        for process in self.processes:
            process.kill()


def _is_healthy(url: str) -> bool:
    # Whose certificate it is concerns the test, not this.
    context = ssl._create_unverified_context() if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1, context=context) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False
