"""The benchmark suite of the source tree, for those who have the command from one."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

import orbitmq
from orbitmq.cli.output import complain


def run_suite(arguments: Sequence[str]) -> None:
    """Become ``python -m bench suite`` with these arguments, or say where that is to be had."""
    tree = source_tree(Path(orbitmq.__file__))
    if tree is None:
        complain(
            "the suite is part of OrbitMQ's source tree, which this installation is not run from: get the sources "
            "and run `make bench BENCH_ARGS=suite` there"
        )
        raise typer.Exit(1)
    sys.stdout.flush()
    path = os.pathsep.join(filter(None, (str(tree), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "bench", "suite", *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})  # noqa: S606 - Python itself


def source_tree(package: Path) -> Path | None:
    """The checkout that holds the package, by the package's ``__init__.py``; None if it was installed elsewhere."""
    tree = package.resolve().parents[2]
    return tree if (tree / "bench" / "suite" / "__init__.py").is_file() else None
