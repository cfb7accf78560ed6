"""Running the ``orbitmq`` command: inside the test, or as its own process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

from typer.testing import CliRunner

from orbitmq.cli import VERBS, app_with

WIDTH = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}


class Ran:
    """What a run of the command left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def run(*arguments: object, stdin: str | None = None) -> Ran:
    """Run the command in this process. Not while a store is open here: asking for its lock would drop it."""
    result = CliRunner(env=WIDTH).invoke(app_with(VERBS), [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def run_apart(*arguments: object, **options: Any) -> Ran:
    """Run the command as a process of its own."""
    command = [sys.executable, "-m", "orbitmq", *map(str, arguments)]
    options = {"env": {**os.environ, **WIDTH}, "timeout": 120, **options}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return Ran(done.returncode, done.stdout, done.stderr)


def fingerprint(root: str | os.PathLike[str]) -> dict[str, tuple[str, int]]:
    """Every name below a directory with its contents and time of change, to see whether anything was touched."""
    found = {}
    for directory, folders, names in os.walk(root):
        for name in folders:
            found[os.path.join(directory, name)] = ("", os.stat(os.path.join(directory, name)).st_mtime_ns)
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                found[path] = (hashlib.file_digest(file, "sha256").hexdigest(), os.stat(path).st_mtime_ns)
    return found
