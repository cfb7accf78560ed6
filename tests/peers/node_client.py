"""The RocketMQ client for Node.js (``ali-ons``) as a peer: fetched once, then told what to do."""

from __future__ import annotations

import functools
import hashlib
import shutil
from pathlib import Path

from peers.agent import Agent
from peers.cache import filled, is_filled
from peers.process import PeerError, run

_PACKAGE = Path(__file__).with_name("node")
_FILES = ("package.json", "package-lock.json", "peer.js")
_FETCH_SECONDS = 240


@functools.cache
def available() -> str | None:
    """None if the Node.js client can be run here, otherwise the reason in one sentence."""
    if shutil.which("node") is None:
        return "the Node.js client takes Node.js (node), which is not on the PATH"
    if not is_filled(_folder_name()) and shutil.which("npm") is None:
        return "fetching the Node.js client takes npm, which is not on the PATH"
    try:
        _folder()
    except PeerError as error:
        said = [line for line in str(error).splitlines() if "error" in line.lower()]
        return f"the Node.js client could not be fetched: {(said or ['no reason was given'])[0][:300]}"
    return None


class NodeClient(Agent):
    """A process with any number of producers and consumers of the Node.js client."""

    def __init__(self, *, home: Path, nameserver: str) -> None:
        command = ["node", str(_folder() / "peer.js"), nameserver]
        super().__init__("Node.js client", command, home=home, environment={})


def _folder() -> Path:
    def fetch(folder: Path) -> None:
        for name in _FILES:
            shutil.copy(_PACKAGE / name, folder)
        # The lock file pins what is fetched by its hash, and leaves from where to npm's own settings.
        command = ["npm", "ci", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"]
        run(command, environment={}, seconds=_FETCH_SECONDS)

    return filled(_folder_name(), fetch)


def _folder_name() -> str:
    contents = hashlib.sha256()
    for name in _FILES:
        contents.update((_PACKAGE / name).read_bytes())
    return f"node-{contents.hexdigest()[:12]}"
