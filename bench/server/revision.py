"""Another revision of OrbitMQ as a peer: checked out of git, built, and installed into a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from peers.process import PeerError

ROOT = Path(__file__).resolve().parents[2]

_BUILD_SECONDS = 300


def install(revision: str, folder: Path) -> Path:
    """Install a git revision below ``folder``; returns what has to be first on ``PYTHONPATH`` to run it.

    Only the package is installed: its dependencies are those of the running environment, so that a comparison
    measures two versions of OrbitMQ and not of a library. pip builds the native extension with the revision's own
    build script. Raises PeerError.
    """
    source, target = folder / "source", folder / "installed"
    source.mkdir(parents=True)
    archive = _run("git", "-C", str(ROOT), "archive", "--format=tar", revision)
    _run("tar", "-x", "-C", str(source), stdin=archive)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, "--no-deps", "--target", str(target), str(source))
    return target


def _run(*command: str, stdin: bytes = b"") -> bytes:
    try:
        return subprocess.run(command, input=stdin, capture_output=True, check=True, timeout=_BUILD_SECONDS).stdout
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode("utf-8", "replace").strip()
        raise PeerError(f"{command[0]} could not prepare the revision: {message}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{command[0]} could not prepare the revision: {error}") from None
