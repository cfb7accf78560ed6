"""The RocketMQ C++ client, from the wheel ``rocketmq`` of PyPI, as a peer: fetched once, driven by requests."""

from __future__ import annotations

import functools
import hashlib
import platform
import shutil
import sys
from pathlib import Path

from peers.agent import Agent
from peers.cache import filled
from peers.process import PeerError, run

_PACKAGE = Path(__file__).with_name("cpp")
_FILES = ("requirements.txt", "peer.py")
_FETCH_SECONDS = 120


@functools.cache
def available() -> str | None:
    """None if the C++ client can be run here, otherwise the reason in one sentence."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "the C++ client's wheel is for Linux on x86_64"
    try:
        _folder()
    except PeerError as error:
        lines = [line for line in str(error).splitlines() if "error" in line.lower()]
        return f"the C++ client could not be fetched: {(lines or ['no reason was given'])[0][:300]}"
    return None


class CppClient(Agent):
    """A process with any number of producers and consumers of the C++ client."""

    def __init__(self, *, home: Path, nameserver: str) -> None:
        command = [sys.executable, str(_folder() / "peer.py"), str(_folder()), nameserver]
        super().__init__("C++ client", command, home=home, environment={})


def _folder() -> Path:
    def fetch(folder: Path) -> None:
        for name in _FILES:
            shutil.copy(_PACKAGE / name, folder)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--target", str(folder), "-r", str(folder / "requirements.txt")]
        run(command, environment={}, seconds=_FETCH_SECONDS)

    contents = hashlib.sha256(b"".join((_PACKAGE / name).read_bytes() for name in _FILES))
    return filled(f"cpp-{contents.hexdigest()[:12]}", fetch)
