"""Flaky tests: with ``--rerun-alone``, tests that failed beside others run once more, alone, and those that pass
then are reported as flaky, by name and counted.

A queue server that answers wrongly under load is broken, so a flaky test is a finding and not a pass: its traceback
is printed, the summary line counts it, and more than ``--max-flaky`` of them fail the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_FLAKY = 2
"""Flaky tests that one run tolerates: real peers answer late at times on two busy cores. More is a race of ours."""

MAX_RERUN = 20
"""When more tests than this fail, the change is broken: running them again would only take time."""

FLAKY = "flaky"
"""Category of these tests in the terminal reporter, which prints it in the summary line: ``1 flaky, 7 passed``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("flaky tests")
    group.addoption(
        "--rerun-alone", action="store_true", help="run failed tests once more, alone: flaky or failed?"
    )
    group.addoption("--max-flaky", type=int, default=MAX_FLAKY, metavar="N", help="more than N fail (default: 2)")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if not config.getoption("rerun_alone") or hasattr(config, "workerinput"):
        return
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    failed = _failed_tests(reporter.stats)
    if exitstatus != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MAX_RERUN:
        return
    reporter.ensure_newline()
    reporter.write_sep("=", f"{len(failed)} failed: run again, alone")
    flaky = failed - _fail_alone(failed, config.rootpath)
    _report_as_flaky(reporter, flaky)
    if not _failed_reports(reporter.stats) and len(flaky) <= config.getoption("max_flaky"):
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reports = terminalreporter.stats.get(FLAKY, [])
    if not reports:
        return
    limit = config.getoption("max_flaky")
    terminalreporter.write_sep("=", "FLAKY")
    for report in reports:
        terminalreporter.write_sep("_", report.nodeid)
        report.toterminal(terminalreporter._tw)
    terminalreporter.write_sep("=", f"{len(reports)} flaky: failed beside others, passed alone (at most {limit})")
    for report in reports:
        terminalreporter.write_line(f"FLAKY {report.nodeid}")


def _failed_reports(stats: dict[str, list[Any]]) -> list[Any]:
    return [*stats.get("failed", ()), *stats.get("error", ())]


def _failed_tests(stats: dict[str, list[Any]]) -> set[str]:
    """Node ids; empty if a file could not be collected, which running its tests again would not repair."""
    reports = _failed_reports(stats)
    if not all(isinstance(report, pytest.TestReport) for report in reports):
        return set()
    return {report.nodeid for report in reports}


def _fail_alone(tests: set[str], root: Path) -> set[str]:
    """Those of the tests that fail in a process of their own, too. All of them if that process breaks off."""
    with tempfile.TemporaryDirectory() as cache:
        arguments = ["-n", "0", "-o", f"cache_dir={cache}", *sorted(tests)]
        code = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=root, check=False).returncode
        if code == pytest.ExitCode.OK:
            return set()
        last_failed = Path(cache, "v/cache/lastfailed")
        if code != pytest.ExitCode.TESTS_FAILED or not last_failed.exists():
            return tests
        return tests & set(json.loads(last_failed.read_text(encoding="utf-8")))


def _report_as_flaky(reporter: Any, flaky: Iterable[str]) -> None:
    """Move the reports of these tests to a category of their own, one for each test."""
    stats, flaky = reporter.stats, set(flaky)
    moved = {report.nodeid: report for report in _failed_reports(stats) if report.nodeid in flaky}
    for category in ("failed", "error"):
        kept = [report for report in stats.pop(category, []) if getattr(report, "nodeid", None) not in flaky]
        if kept:
            stats[category] = kept
    if moved:
        stats[FLAKY] = list(moved.values())
    reporter._main_color = None  # the reporter computes it again from the categories
