"""porcupine, a linearizability checker in Go, as a judge of histories: fetched and built once."""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from peers.cache import filled
from peers.process import PeerError, run

_MODULE = Path(__file__).parent
_BUILD_SECONDS = 240
_CHECK_SECONDS = 120


@functools.cache
def available() -> str | None:
    """None if histories can be checked here, otherwise the reason in one sentence."""
    if shutil.which("go") is None:
        return "porcupine takes the Go toolchain (go), which is not on the PATH"
    try:
        _program()
    except PeerError as error:
        said = [line for line in re.sub(r"https?://\S+", "", str(error)).splitlines() if line.strip()]
        return f"porcupine could not be built: {(said or ['no reason was given'])[-1][:300]}"
    return None


def is_linearizable(history: Path) -> bool:
    """The verdict on the requests to a controller in a file of ``--calls``. Raises PeerError without one."""
    command = [str(_program()), str(history)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_CHECK_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"porcupine: {error}") from None
    if done.returncode not in {0, 1}:
        raise PeerError(f"porcupine: {done.stdout}{done.stderr}")
    return done.returncode == 0


def _program() -> Path:
    contents = hashlib.sha256()
    for file in [*sorted(_MODULE.glob("*.go")), _MODULE / "go.mod", _MODULE / "go.sum"]:
        contents.update(file.read_bytes())

    def build(folder: Path) -> None:
        command = ["env", f"--chdir={_MODULE}", "go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath"]
        command += ["-o", str(folder / "checker"), "."]
        run(command, environment={"CGO_ENABLED": "0"}, seconds=_BUILD_SECONDS)

    return filled(f"porcupine-{contents.hexdigest()[:12]}", build) / "checker"
