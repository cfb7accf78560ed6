"""What goes wrong is one sentence on standard error, never a traceback; 1 for problems, 2 for usage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq import __version__, native
from support.cli.command import run, run_apart
from support.store import golden

if TYPE_CHECKING:
    from collections.abc import Iterator

VERBS = ("inspect", "dump", "verify", "rebuild")


@pytest.mark.parametrize("verb", VERBS)
def test_a_directory_that_is_not_there(verb: str, tmp_path: Path) -> None:
    ran = run("store", verb, tmp_path / "none")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"orbitmq: there is no directory {tmp_path}/none\n"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_directory_that_is_no_store(verb: str, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("hello")
    ran = run("store", verb, tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"orbitmq: {tmp_path} is not a store")
    assert ran.err.count("\n") == 1
    assert os.listdir(tmp_path) == ["letters.txt"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_conf_with_wrong_sizes(verb: str, tmp_path: Path) -> None:
    root = golden.unpack("ipv6", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1073741824\n")
    ran = run("store", verb, root, "--conf", conf)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "mappedFileSizeCommitLog=1073741824" in ran.err


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("text", [None, b"maxIndexNum=many\n", b"\xff\xfe\x00"])
def test_a_conf_that_cannot_be_used(text: bytes | None, verb: str, tmp_path: Path) -> None:
    root = golden.unpack("ipv6", tmp_path)
    conf = tmp_path / "broker.conf"
    if text is not None:
        conf.write_bytes(text)
    ran = run("store", verb, root, "--conf", conf)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert str(conf) in ran.err or "maxIndexNum=many" in ran.err


@pytest.fixture
def nobody() -> Iterator[None]:
    """Root may read everything, so root asks as somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def closed_store(tmp_path: Path) -> Iterator[str]:
    root = golden.unpack("ipv6", tmp_path)
    run("store", "rebuild", root, "--yes")  # so that everything is imported: nobody may not read Python itself
    modes = {str(folder): os.stat(folder).st_mode for folder in (Path(root), tmp_path, *tmp_path.parents[:2])}
    for folder in modes:
        os.chmod(folder, 0o755)
    os.chmod(root, 0)
    yield root
    for folder, mode in modes.items():
        os.chmod(folder, mode)


@pytest.mark.parametrize("verb", VERBS)
def test_permission_denied(verb: str, closed_store: str, nobody: None) -> None:
    ran = run("store", verb, closed_store)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith(f"orbitmq: {closed_store}")
    assert "Permission denied" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("store", "frobnicate"),
        ("store", "dump"),
        ("store", "dump", ".", "--from", "sometime"),
        ("store", "dump", ".", "--limit", "0"),
        ("store", "dump", ".", "--body", "loud"),
        ("nothing",),
    ],
)
def test_a_command_that_is_not_understood_ends_with_2(arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err


def test_the_version_is_shown() -> None:
    assert run("--version").out == f"orbitmq {__version__}\nnative extension: {native.status()}\n"
    off = run_apart("--version", env={**os.environ, "ORBITMQ_NATIVE": "off"}).out
    assert off == f"orbitmq {__version__}\nnative extension: no, switched off by ORBITMQ_NATIVE\n"
