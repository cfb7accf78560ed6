"""The JDK and Maven of this machine: Java peers are fetched and compiled once with them, and run."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
from typing import TYPE_CHECKING

from peers.cache import filled, is_filled
from peers.process import PeerError, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OLDEST_JAVA = 17

_ASK_SECONDS = 60
_FETCH_SECONDS = 240
_COMPILE_SECONDS = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Jars:
    """What a ``pom.xml`` depends on. ``kind`` begins the name under which that lies in the cache."""

    kind: str
    pom: Path

    @property
    def name(self) -> str:
        return f"{self.kind}-{digest(self.pom)}"

    def folder(self) -> Path:
        """The folder with the jars, fetched once."""
        return filled(self.name, self._fetch)

    def unavailable(self, what: str) -> str | None:
        """None if the jars are there and can be run, otherwise the reason in one sentence; they are ``what``."""
        if java_version() < OLDEST_JAVA or tool("javac") is None:
            return f"running {what} takes a JDK (java and javac) of version {OLDEST_JAVA} or newer"
        if not is_filled(self.name) and tool("mvn") is None:
            return f"fetching {what} takes Maven (mvn), which is not on the PATH"
        try:
            self.folder()
        except PeerError as error:
            return f"{what} could not be fetched: {first_error(str(error))}"
        return None

    def compiled(self, sources: Sequence[Path], kind: str) -> Path:
        """The folder with the classes of test programs that use the jars, compiled once.

        Sources that do not compile are an error and no reason to skip a test: they are the project's own.
        """

        def compile_all(folder: Path) -> None:
            command = [tool("javac") or "javac", "-encoding", "UTF-8", "-cp", f"{jars}/*"]
            run([*command, "-d", str(folder), *map(str, sources)], environment={}, seconds=_COMPILE_SECONDS)

        jars = self.folder()
        return filled(f"{self.name}-{kind}-{digest(*sources)}", compile_all)

    def _fetch(self, folder: Path) -> None:
        command = [tool("mvn") or "mvn", "-q", "-B", "-f", str(self.pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        run(command, environment={}, seconds=_FETCH_SECONDS)


def tool(name: str) -> str | None:
    """The path of a tool: that of ``JAVA_HOME`` if it has one, otherwise that of the PATH."""
    java_home = os.environ.get("JAVA_HOME")
    if java_home and (found := shutil.which(name, path=f"{java_home}/bin")):
        return found
    return shutil.which(name)


def java_version() -> int:
    """17 for Java 17; 0 if there is none, or one that is very old."""
    java = tool("java")
    if java is None:
        return 0
    try:
        said = run([java, "--version"], environment={}, seconds=_ASK_SECONDS)
    except PeerError:
        return 0  # Java 8 does not know the question
    version = re.match(r"\S+ (\d+)", said)
    return int(version[1]) if version else 0


def digest(*files: Path) -> str:
    """Names what was made of files, so that it is made anew when one of them changes."""
    contents = hashlib.sha256()
    for file in files:
        contents.update(file.read_bytes())
    return contents.hexdigest()[:12]


def first_error(said: str) -> str:
    """The first line of a tool's output that tells of an error, without colours and addresses."""
    plain = re.sub(r"\x1b\[[0-9;]*m|\(?https?://\S+", "", said)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [line.removeprefix("[ERROR] ") for line in lines if "error" in line.lower()]
    return (errors or lines or ["no reason was given"])[0][:300]
