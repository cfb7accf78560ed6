"""``orbitmq tour`` runs to its end and cleans up behind itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from command import run, run_apart

if TYPE_CHECKING:
    from pathlib import Path


def test_the_tour_ends_well_and_leaves_nothing(tmp_path: Path) -> None:
    ran = run_apart("tour", "--messages", "2000", env={**os.environ, "TMPDIR": str(tmp_path), "NO_COLOR": "1"})
    assert (ran.code, ran.err) == (0, "")
    for text in ("2,000 messages appended", "killed with SIGKILL", "every acknowledged message is there"):
        assert text in ran.out
    assert os.listdir(tmp_path) == []


def test_a_directory_that_is_given_is_kept(tmp_path: Path) -> None:
    ran = run("tour", "--messages", "500", "--dir", tmp_path / "store")
    assert ran.code == 0, ran.err
    assert run("store", "verify", tmp_path / "store").code == 0


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("hello")
    ran = run("tour", "--dir", tmp_path)
    assert ran.code == 1
    assert ran.err == f"orbitmq: {tmp_path} is not empty: give a directory that is, or one that does not exist\n"
    assert os.listdir(tmp_path) == ["letters.txt"]
