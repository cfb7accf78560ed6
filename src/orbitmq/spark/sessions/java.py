"""Detection of a Java installation for Spark, with one sentence if there is none."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from orbitmq.spark.errors import SparkSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MIN_VERSION = 17
"""The minimum version for Spark 4."""

FOLDERS = ("/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "/opt/*jdk*", "/opt/*jre*")
"""The usual folders of Linux distributions and container images."""

_VERSION_SECONDS = 30


class JavaMissingError(SparkSourceError):
    """There is no Java on this machine that Spark can run on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Java:
    """A Java of this machine: its version (17 for Java 17), and its home, which has ``bin/java``."""

    version: int
    home: str


def find() -> Java:
    """The one of ``JAVA_HOME``, else of the ``PATH``, else the oldest of the usual places that is new enough.

    The oldest, for it is the one that Spark has been run on most. Raises JavaMissingError.
    """
    too_old = None
    for home in _named(os.environ):
        version = _version_of(home)
        if version >= MIN_VERSION:
            return Java(version, home)
        if version:
            too_old = too_old or Java(version, home)
    installed = [Java(_version_of(home), home) for pattern in FOLDERS for home in sorted(glob.glob(pattern))]
    fitting = [java for java in installed if java.version >= MIN_VERSION]
    if fitting:
        return min(fitting, key=lambda java: java.version)
    there_is = f"only Java {too_old.version} in {too_old.home}" if too_old else "none"
    raise JavaMissingError(
        f"Spark needs Java {MIN_VERSION} or newer and there is {there_is}: "
        f"run 'apt-get install openjdk-{MIN_VERSION}-jre-headless' (Debian 13: openjdk-21-jre-headless) "
        "or set JAVA_HOME"
    )


def _named(environment: Mapping[str, str]) -> Iterator[str]:
    """The configured homes."""
    if home := environment.get("JAVA_HOME"):
        yield home
    if command := shutil.which("java", path=environment.get("PATH", os.defpath)):
        # On Debian it is a link to a link to the real one.
        yield os.path.dirname(os.path.dirname(os.path.realpath(command)))


def _version_of(home: str) -> int:
    """The major version; 0 if there is no Java or its version is unknown."""
    command = os.path.join(home, "bin", "java")
    if not os.access(command, os.X_OK):
        return 0
    try:
        # Every Java since 8 has this file; asking the program itself takes half a second.
        with open(os.path.join(home, "release"), encoding="utf-8", errors="replace") as file:
            release = file.read()
    except OSError:
        release = _java_version_output(command)
    # Java 8 calls itself 1.8.
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', release)
    return int(found[1]) if found else 0


def _java_version_output(command: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the program that was looked for
            [command, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_VERSION_SECONDS,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout
