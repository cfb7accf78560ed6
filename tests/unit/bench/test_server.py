"""The benchmark of servers reads what its loads print and reports it. No server is started here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.paths import PROJECT

ROOT = PROJECT
# The benchmarks are no part of what is installed.
sys.path.append(str(ROOT))


from bench.figures import Size  # noqa: E402
from bench.machine import Machine  # noqa: E402
from bench.server.java_load import consumer_lines, producer_lines  # noqa: E402
from bench.server.loads import PLANS, loads  # noqa: E402
from bench.server.measures import CPU, RATE, Sample, compare  # noqa: E402
from bench.server.raw_load import finding  # noqa: E402
from bench.server.report import ServerReport  # noqa: E402
from bench.server.revision import install  # noqa: E402
from bench.server.usage import processor_seconds, resident_memory  # noqa: E402

from peers.process import PeerError  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = {
    "OrbitMQ": [Sample({RATE: 80_000.0, CPU: 10.0}), Sample({RATE: 60_000.0, CPU: 12.0})],
    "Apache RocketMQ": [
        Sample({RATE: 40_000.0, CPU: 40.0}),
        Sample({RATE: 60_000.0, CPU: 30.0}, failures=3, failure="code 2: busy"),
    ],
}


def report() -> ServerReport:
    machine = Machine("a processor", 2, 4.0, "Linux", "ext4", "CPython", "isal", "0.1.0", "abc")
    made = ServerReport(machine, "usual", list(SAMPLES), ["a load: no Go here"], 0.5, source_after="abc")
    made.samples = {"send 128 B": SAMPLES}
    return made


def test_what_the_raw_load_prints_is_read() -> None:
    message = (
        b'{"messages":10,"requests":11,"failures":1,"failure":"code 2: busy","seconds":0.5,'
        b'"p50_us":100,"p99_us":200,"p999_us":300,"max_us":400}\n'
    )
    found = finding(message)
    assert (found.messages, found.failures, found.failure) == (10, 1, "code 2: busy")
    assert (found.p50_us, found.p99_us, found.p999_us) == (100, 200, 300)


def test_a_raw_load_without_failures_says_nothing_of_them() -> None:
    message = b'{"messages":1,"requests":1,"failures":0,"seconds":1,"p50_us":1,"p99_us":1,"p999_us":1,"max_us":1}\n'
    assert finding(message).failure == ""


def test_lines_of_apaches_producer_are_read_and_others_passed_over() -> None:
    text = (
        "topic: T, threadCount: 64, messageSize: 128, keyEnable: false\n"
        "Current Time: 2026-01-02 03:04:05,678 | Send TPS: 9876 | Max RT(ms): 512 "
        "| Average RT(ms):   6.543 | Send Failed: 1 | Response Failed: 2\n"
        "Current Time: 2026-01-02 03:04:06,678 | Send TPS: 0 | Max RT(ms): 512 "
        "| Average RT(ms):     NaN | Send Failed: 1 | Response Failed: 2\n"
        "Current Time: 2026-01-02 03:04:07,6"
    )
    first, second = producer_lines(text)
    assert (first.rate, first.average, first.failed) == (9876, 6.543, 3)
    assert second.rate == 0


def test_lines_of_apaches_consumer_are_read() -> None:
    text = (
        "Consumer Started.\n"
        "Current Time: 2026-01-02 03:04:05,678 | Consume TPS: 4321 | AVG(B2C) RT(ms):   8.125 "
        "| AVG(S2C) RT(ms):   7.000 | MAX(B2C) RT(ms): 99 | MAX(S2C) RT(ms): 98 | Consume Fail: 0\n"
    )
    (line,) = consumer_lines(text)
    assert (line.rate, line.end_to_end, line.failed) == (4321, 8.125, 0)


def test_an_advantage_is_taken_round_by_round_and_above_1_whenever_we_are_ahead() -> None:
    rate, cpu = compare("send 128 B", SAMPLES)
    assert rate.advantage is not None
    assert rate.advantage.values == (2.0, 1.0)
    assert cpu.advantage is not None
    assert cpu.advantage.values == (4.0, 2.5)
    assert cpu.figures["OrbitMQ"].values == (10.0, 12.0)


def test_one_system_alone_has_figures_and_no_advantage() -> None:
    (rate, cpu) = compare("send 128 B", {"OrbitMQ": SAMPLES["OrbitMQ"]})
    assert rate.advantage is None
    assert rate.figures["OrbitMQ"].median == 70_000
    assert cpu.advantage is None


def test_a_report_says_what_failed_and_what_was_left_out() -> None:
    assert report().remarks() == [
        "not measured: a load: no Go here",
        "send 128 B: Apache RocketMQ failed 3 requests, the first with code 2: busy",
    ]


def test_a_report_is_written_as_json() -> None:
    written = json.loads(json.dumps(report().as_json()))
    rate, cpu = written["rows"]
    assert rate["systems"]["OrbitMQ"] == {
        "min": 60_000,
        "median": 70_000,
        "max": 80_000,
        "rounds": [80_000, 60_000],
    }
    assert cpu["advantage"]["median"] == 3.25
    assert written["systems"] == ["OrbitMQ", "Apache RocketMQ"]


def test_a_report_is_written_as_markdown() -> None:
    lines = report().as_markdown().splitlines()
    assert "### send 128 B" in lines
    assert "| measure | unit | OrbitMQ | Apache RocketMQ | times better |" in lines
    row = "| messages | msgs/s | 70,000 (60,000–80,000) | 50,000 (40,000–60,000) | 1.50 (1–2) |"
    assert row in lines


def test_a_process_group_has_used_time_and_memory() -> None:
    group = os.getpgrp()
    assert processor_seconds(group) > 0
    memory = resident_memory(group)
    assert 0 < memory.anonymous <= memory.total


@pytest.mark.parametrize("size", Size)
def test_loads_of_a_run_have_names_of_their_own(size: Size) -> None:
    names = [load.name for load in loads(size)]
    assert len(set(names)) == len(names) > 0
    assert PLANS[size].rounds >= 1


def test_the_command_lists_its_loads_and_refuses_unknown_ones() -> None:
    command = (sys.executable, "-m", "bench", "server")
    listed = subprocess.run([*command, "--list"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert listed.stdout.splitlines() == [load.name for load in loads(Size.USUAL)]
    refused = subprocess.run(
        [*command, "--only", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert refused.returncode == 2
    assert "no load is called nothing" in refused.stderr


def test_a_revision_that_git_does_not_know_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="no-such-revision"):
        install("no-such-revision", tmp_path / "baseline")


def test_a_baseline_and_other_systems_exclude_each_other() -> None:
    command = (sys.executable, "-m", "bench", "server", "--baseline", "HEAD", "--system", "apache")
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert "not both" in refused.stderr
