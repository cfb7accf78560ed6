"""``--rerun-alone``: a pytest run of its own in a temporary folder, with tests that fail the first time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from support import flaky

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = "from support.flaky import pytest_addoption, pytest_sessionfinish, pytest_terminal_summary\n"
PASSES = "def test_passes():\n    assert True\n"
FAILS = "def test_fails():\n    assert False\n"
SUMMARY = re.compile(r"=+ (.*) in [\d.]+s.* =+")


def fails_once(number: int) -> str:
    """A test that fails the first time it runs in this folder."""
    return (
        f"def test_fails_once_{number}():\n"
        f"    from pathlib import Path\n"
        f"    first = Path(__file__).with_name('ran-{number}')\n"
        f"    ran_before = first.exists()\n"
        f"    first.touch()\n"
        f"    assert ran_before\n"
    )


class Run:
    def __init__(self, folder: Path, *tests: str, arguments: tuple[str, ...] = ("--rerun-alone",)) -> None:
        folder.joinpath("pytest.ini").write_text("[pytest]\n")
        folder.joinpath("conftest.py").write_text(CONFTEST)
        folder.joinpath("test_it.py").write_text("\n\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-n", "0", *arguments]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a start takes a second with all plugins
            "PYTEST_ADDOPTS": "-p xdist.plugin",
        }
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        self.code, self.output = done.returncode, done.stdout
        last_line = SUMMARY.fullmatch(done.stdout.splitlines()[-1])
        assert last_line, done.stdout + done.stderr
        self.summary = set(last_line[1].split(", "))


def test_a_test_that_passes_alone_is_reported_as_flaky_by_name(tmp_path: Path) -> None:
    run = Run(tmp_path, PASSES, fails_once(1))
    assert run.code == 0
    assert run.summary == {"1 passed", "1 flaky"}
    assert "FLAKY test_it.py::test_fails_once_1" in run.output
    assert "assert ran_before" in run.output, "its traceback is printed"


def test_two_flaky_tests_are_tolerated(tmp_path: Path) -> None:
    run = Run(tmp_path, PASSES, fails_once(1), fails_once(2))
    assert (run.code, run.summary) == (0, {"1 passed", "2 flaky"})


def test_more_than_two_flaky_tests_fail_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, PASSES, *map(fails_once, range(3)))
    assert (run.code, run.summary) == (1, {"1 passed", "3 flaky"})
    assert "3 flaky: failed beside others, passed alone (at most 2)" in run.output


def test_a_test_that_fails_alone_too_fails_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, PASSES, FAILS, fails_once(1))
    assert (run.code, run.summary) == (1, {"1 failed", "1 passed", "1 flaky"})
    assert "FAILED test_it.py::test_fails" in run.output


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    count = flaky.MAX_RERUN + 1
    run = Run(tmp_path, *map(fails_once, range(count)))
    assert (run.code, run.summary) == (1, {f"{count} failed"})


def test_a_file_that_cannot_be_collected_fails_the_run(tmp_path: Path) -> None:
    tmp_path.joinpath("test_broken.py").write_text("import nothing_of_this_name\n")
    run = Run(tmp_path, PASSES)
    assert run.code == 2
    assert "1 error" in run.summary


def test_without_the_option_nothing_runs_again(tmp_path: Path) -> None:
    run = Run(tmp_path, fails_once(1), arguments=())
    assert (run.code, run.summary) == (1, {"1 failed"})


def test_failures_of_several_processes_run_again_in_one(tmp_path: Path) -> None:
    run = Run(tmp_path, PASSES, FAILS, fails_once(1), arguments=("--rerun-alone", "-n", "2"))
    assert (run.code, run.summary) == (1, {"1 failed", "1 passed", "1 flaky"})
