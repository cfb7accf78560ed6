"""Shared by the store commands: directory and settings file, and the process that has the store open."""

import fcntl
import os
import struct
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.store import ConfigError, LocalDisk, parse_conf
from orbitmq.store.tools.detect_layout import Layout, survey

_FLOCK = struct.Struct("hhqqii")

Directory = Annotated[str, typer.Argument(metavar="DIR", help="Store directory, which contains commitlog.")]
Conf = Annotated[
    Path | None,
    typer.Option(
        "--conf",
        "-c",
        help="Settings file of the broker that wrote the store. Without it, file sizes are detected.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_layout(directory: str, conf: Path | None) -> tuple[LocalDisk, Layout]:
    """The layout of a store, from its files and from a ``broker.conf`` if given."""
    disk = LocalDisk()
    settings = None
    if conf is not None:
        try:
            settings = parse_conf(conf.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise ConfigError(f"{conf} is not a UTF-8 text file: give a broker.conf") from None
    return disk, survey(disk, os.path.normpath(directory), settings)


def holder_of(root: str) -> int | None:
    """The process that has a store open, found without acquiring its lock; 0 for a process of another machine.

    Must not be used while this process has the store open: closing any descriptor drops a POSIX lock.
    """
    try:
        descriptor = os.open(os.path.join(root, "lock"), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0, 0)
        kind, _, _, _, process, _ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(int(process), 0)
