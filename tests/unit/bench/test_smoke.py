"""The benchmark runs and says what it measured. No test looks at how fast anything was."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from support.paths import PROJECT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROOT = PROJECT


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = (sys.executable, "-m", "bench", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_a_quick_run_writes_its_figures_as_json_and_cleans_up(tmp_path: Path) -> None:
    done = bench("--quick", "--only", "append", "--json", "-", "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["size"] == "quick"
    assert {"cpu", "cores", "memory_gib", "system", "file_system", "python", "crc32", "orbitmq", "source"} == set(
        report["machine"]
    )
    assert {"load_before", "load_after", "source_after"} <= set(report)
    assert list(report["scenarios"]) == ["append"]
    figures = report["scenarios"]["append"]["figures"]
    assert {figure["subject"] for figure in figures} == {"10 B", "128 B", "1024 B", "4096 B"}
    for figure in figures:
        assert set(figure) == {"subject", "measure", "unit", "min", "median", "max", "rounds"}
        assert 0 <= figure["min"] <= figure["median"] <= figure["max"]
        assert figure["rounds"] >= 1
    judged = {bar["scenario"]: bar["met"] for bar in report["bars"]}
    assert judged.pop("append") in {True, False}
    assert set(judged.values()) == {None}, "a bar was judged that nothing was measured for"
    assert list(tmp_path.iterdir()) == []


def test_the_bars_name_figures_that_scenarios_make(tmp_path: Path) -> None:
    done = bench("--quick", "--only", "scan", "--json", str(tmp_path / "report.json"), "--dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [bar["met"] is None for bar in report["bars"] if bar["scenario"] == "scan"] == [False]
    assert "scan" in done.stdout


def test_the_list_names_every_scenario() -> None:
    done = bench("--list")
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert {
        "append",
        "batch-append",
        "sync-flush",
        "read",
        "scan",
        "recovery",
        "clean-open",
        "memory",
        "queues",
        "deferred",
        "protocol",
        "timers",
    } == set(names)


def test_an_unknown_scenario_is_refused_by_name() -> None:
    done = bench("--only", "nothing")
    assert done.returncode == 2
    assert "nothing is none of" in done.stderr
