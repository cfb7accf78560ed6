"""inspect, dump and verify leave a store exactly as it was, also one that a crash left or that is damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.cli.command import fingerprint, run
from support.store import golden

if TYPE_CHECKING:
    from pathlib import Path

VERBS: tuple[tuple[str, ...], ...] = (
    ("inspect",),
    ("inspect", "--json"),
    ("dump", "--limit", "5"),
    ("dump", "--json"),
    ("dump", "--key", "nothing"),
    ("verify",),
    ("verify", "--json"),
)


@pytest.mark.parametrize("name", golden.SETS)
def test_nothing_is_written_created_or_deleted(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    # As a crash leaves them, where recovery would remove or complete something.
    (tmp_path / "store" / "index" / "20270101000000000").touch()
    (tmp_path / "store" / "commitlog" / "00000000000010485760").touch()
    before = fingerprint(tmp_path)
    for verb, *options in VERBS:
        ran = run("store", verb, root, *options)
        # A dump that comes to the torn end of this one says so.
        assert ran.code == (name == "torn" and verb == "dump" and "--limit" not in options), ran.err
    assert fingerprint(tmp_path) == before
