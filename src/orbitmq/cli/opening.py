"""What all verbs on a store have in common: the directory, the conf, and whether somebody has the store open."""

import fcntl
import os
import struct
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.store import ConfigError, LocalDisk, parse_conf
from orbitmq.store.layout import Layout, survey

_FLOCK = struct.Struct("hhqqii")

Directory = Annotated[str, typer.Argument(metavar="DIR", help="The store: the directory that holds commitlog.")]
Conf = Annotated[
    Path | None,
    typer.Option("--conf", "-c", help="The broker.conf the store was written with. Sizes are found without it."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


def open_layout(directory: str, conf: Path | None) -> tuple[LocalDisk, Layout]:
    """The sizes of a store's files, from the files and from a ``broker.conf`` if there is one."""
    disk = LocalDisk()
    settings = None
    if conf is not None:
        try:
            settings = parse_conf(conf.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise ConfigError(f"{conf} is not a text file in UTF-8: give a broker.conf") from None
    return disk, survey(disk, os.path.normpath(directory), settings)


def holder_of(root: str) -> int | None:
    """The process that has a store open, asked without taking its lock; 0 if it is of another machine.

    Not for a process that has the store open itself: a POSIX lock goes with the first descriptor closed.
    """
    try:
        descriptor = os.open(os.path.join(root, "lock"), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0, 0)
        kind, _, _, _, process, _ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(int(process), 0)
