"""The benchmark of timers, delay levels, transactions and POP: its arithmetic and its command, without a server."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.paths import PROJECT

ROOT = PROJECT
# The benchmarks are no part of what is installed.
sys.path.append(str(ROOT))

from bench.figures import Size  # noqa: E402
from bench.machine import Machine  # noqa: E402
from bench.messaging.loads import loads, needs_pending  # noqa: E402
from bench.messaging.measures import (  # noqa: E402  # noqa: E402
    LATE_MAX,
    LATE_P50,
    LATE_P99,
    PROBE_MAX,
    PROBE_P99,
    Watched,
    fired,
    lateness,
    quantile,
)
from bench.messaging.plan import PLANS  # noqa: E402
from bench.messaging.report import MessagesReport  # noqa: E402
from bench.server.measures import CPU, RATE  # noqa: E402
from bench.server.raw_load import Finding, finding  # noqa: E402

READ = Finding(
    messages=2000,
    requests=63,
    failures=0,
    seconds=0.1,
    p50_us=1,
    p99_us=1,
    p999_us=1,
    max_us=1,
    late_p50_us=50_000,
    late_p99_us=99_000,
    late_max_us=100_000,
    first_ms=5_000,
    last_ms=5_099,
)


def test_a_rate_is_taken_from_the_first_to_the_last_message_in_the_log() -> None:
    sample = fired(READ, Watched(processor_seconds=0.04))
    assert sample.values == {RATE: 20_000, CPU: 20}


def test_a_rate_can_be_taken_from_when_messages_could_begin_to_come() -> None:
    assert fired(READ, Watched(0.04), since_ms=4_900).values[RATE] == 10_000


def test_messages_of_one_millisecond_have_a_rate() -> None:
    at_once = Finding(10, 1, 0, 0.1, 1, 1, 1, 1, first_ms=5, last_ms=5)
    assert fired(at_once, Watched(0.0)).values[RATE] == 10_000


def test_the_slowest_send_meanwhile_is_reported() -> None:
    sends = [0.001] * 98 + [0.005, 0.2]
    sample = fired(READ, Watched(0.04, sends))
    assert (sample.values[PROBE_P99], sample.values[PROBE_MAX]) == (200, 200)
    assert quantile(sorted(sends), 0.98) == 0.005


def test_a_message_that_came_early_is_a_failure() -> None:
    early = Finding(10, 1, 0, 0.1, 1, 1, 1, 1, early=3, first_ms=5, last_ms=9)
    assert fired(early, Watched(0.0)).failures == 3


def test_how_late_messages_came_is_reported_in_milliseconds() -> None:
    assert lateness(READ) == {LATE_P50: 50, LATE_P99: 99, LATE_MAX: 100}


def test_what_the_raw_load_says_of_messages_that_came_is_read() -> None:
    message = {"messages": 1, "requests": 1, "failures": 0, "seconds": 1, "p50_us": 1, "p99_us": 1, "p999_us": 1}
    message |= {"max_us": 1, "late_p50_us": 7, "early": 2, "first_ms": 3, "last_ms": 4}
    found = finding(json.dumps(message).encode())
    assert (found.late_p50_us, found.late_p99_us, found.early, found.first_ms, found.last_ms) == (7, 0, 2, 3, 4)


@pytest.mark.parametrize("size", PLANS)
def test_a_backlog_fits_into_its_level_at_the_rate_of_a_busy_machine(size: Size) -> None:
    plan = PLANS[size]
    assert plan.pending / (plan.level_ms / 1000) <= 20_000


def test_only_timers_are_measured_beside_timers_that_wait() -> None:
    assert [load.name for load in loads() if needs_pending(load)] == [
        "timers: enter",
        "timers: fire, all due at one time",
    ]


def test_a_report_says_how_many_messages_there_were() -> None:
    machine = Machine("a processor", 2, 4.0, "Linux", "ext4", "CPython", "isal", "0.1.0", "abc")
    report = MessagesReport(machine, "usual", ["OrbitMQ"], [], 0.5, source_after="abc", plan=PLANS[Size.USUAL])
    assert "timers: 1,000,000 waited all the time" in report.remarks()[0]
    assert "a backlog of 1,000,000 in level 5" in report.remarks()[1]
    assert json.loads(json.dumps(report.as_json()))["plan"]["pending"] == 1_000_000


def test_the_command_lists_its_loads_and_refuses_unknown_ones() -> None:
    command = (sys.executable, "-m", "bench", "messages")
    listed = subprocess.run([*command, "--list"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert listed.stdout.splitlines() == [load.name for load in loads()]
    refused = subprocess.run(
        [*command, "--only", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert refused.returncode == 2
    assert "no load is called nothing" in refused.stderr
