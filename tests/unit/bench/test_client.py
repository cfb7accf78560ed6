"""The benchmark of clients reads what its loads report and reports it. No peer is started here."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.paths import PROJECT

ROOT = PROJECT
# The benchmarks are no part of what is installed.
sys.path.append(str(ROOT))

from bench.client.java_client import batch_lines, read_lines  # noqa: E402
from bench.client.loads import ASYNC_SEND, CONSUME, FILLED, LOADS, PLANS, Program  # noqa: E402
from bench.client.measures import CORES, CPU, verdicts  # noqa: E402
from bench.client.report import ClientReport  # noqa: E402
from bench.client.turns import run_load, sample_of  # noqa: E402
from bench.client.window import Finding, Task, read_finding, read_task  # noqa: E402
from bench.figures import Size  # noqa: E402
from bench.machine import Machine  # noqa: E402
from bench.server.measures import P50, P99, RATE, Sample  # noqa: E402

from orbitmq import Message  # noqa: E402

if TYPE_CHECKING:
    from orbitmq.testing import ThreadCluster

OURS = "OrbitMQ, asyncio → OrbitMQ"
THEIRS = "rocketmq-python-client 5.1.2 → Apache's proxy"
SAMPLES = {
    ASYNC_SEND: {
        OURS: [Sample({RATE: 30_000.0, CPU: 20.0}), Sample({RATE: 40_000.0, CPU: 22.0})],
        THEIRS: [
            Sample({RATE: 1_000.0, CPU: 500.0}, failures=2, failure="busy"),
            Sample({RATE: 1_500.0, CPU: 600.0}),
        ],
    }
}


def report() -> ClientReport:
    machine = Machine("a processor", 2, 4.0, "Linux", "ext4", "CPython", "isal", "0.1.0", "abc")
    return ClientReport(
        machine, "usual", ["Java client 5.5.0: no Java here"], 0.5, source_after="abc", samples=SAMPLES
    )


def test_the_task_and_the_report_of_a_load_are_read() -> None:
    reported = '{"mode": "send-sync", "address": "a:1", "topic": "T", "group": "G", "seconds": 3, "threads": 2}'
    assert read_task(reported) == Task("send-sync", "a:1", "T", "G", 3, threads=2)
    message = b'{"messages": 10, "seconds": 0.5, "processor_seconds": 0.25, "p50_us": 100, "p99_us": 900}\n'
    assert read_finding(message) == Finding(10, 0.5, 0.25, p50_us=100, p99_us=900)


def test_a_report_of_a_load_becomes_rates_and_costs() -> None:
    sample = sample_of(Finding(1_000, 2.0, 0.5, 3, "busy", 150.0, 2_000.0))
    assert sample.values == {RATE: 500, CPU: 500, CORES: 0.25, P50: 0.15, P99: 2}
    assert (sample.failures, sample.failure) == (3, "busy")


def test_a_load_that_did_nothing_has_no_infinite_cost() -> None:
    assert sample_of(Finding(0, 1.0, 0.5)).values == {RATE: 0, CPU: 500_000, CORES: 0.5}


def test_lines_of_apaches_batch_producer_are_read_in_messages() -> None:
    text = (
        "topic: T, threadCount: 1, messageSize: 128, batchSize: 100\n"
        "Current Time: 2026-01-02 03:04:05,678 | Send TPS: 98 | Send MPS: 9876 | Max RT(ms): 512 "
        "| Average RT(ms):   6.543 | Average Message RT(ms):   0.065 | Send Failed: 1 | Send Message Failed: 100\n"
        "Current Time: 2026-01-02 03:04:06,678 | Send TPS: 9"
    )
    (line,) = batch_lines(text)
    assert (line.rate, line.average, line.failed) == (9876, 6.543, 100)
    assert read_lines("BatchProducer", text) == [line]
    assert read_lines("Producer", text) == []


def test_bars_are_held_against_the_best_way_of_our_client() -> None:
    rate, times, with_apache, consume, *others = verdicts(SAMPLES)
    assert rate.sentence == "met           async send of 128 B, at least 30,000 a second: 35,000 msgs/s"
    assert times.value == 28
    assert with_apache.value is None
    assert consume.sentence == "not measured  consume of 128 B, at least 60,000 a second"
    assert [other.as_json()["met"] for other in others] == [None, None]


def test_a_report_says_what_failed_and_what_was_left_out() -> None:
    assert report().remarks() == [
        "not measured: Java client 5.5.0: no Java here",
        f"async send: {THEIRS} failed 2 times, the first with busy",
    ]


def test_a_report_is_written_as_json() -> None:
    written = json.loads(json.dumps(report().as_json()))
    rate, cpu = written["rows"]
    assert rate["systems"][OURS] == {"min": 30_000, "median": 35_000, "max": 40_000, "rounds": [30_000, 40_000]}
    assert cpu["systems"][THEIRS]["median"] == 550
    assert [bar["met"] for bar in written["bars"]] == [True, True, None, None, None, None]


def test_a_report_is_written_as_markdown() -> None:
    lines = report().as_markdown().splitlines()
    assert "### async send" in lines
    assert "| client → server | msgs/s | CPU, µs/msg |" in lines
    assert f"| {OURS} | 35,000 (30,000–40,000) | 21 (20–22) |" in lines


def test_clients_of_a_load_have_names_of_their_own() -> None:
    assert {ASYNC_SEND, CONSUME} < {load.name for load in LOADS}
    for load in LOADS:
        names = [contender.name for contender in load.contenders]
        assert len(set(names)) == len(names) > 0
        assert load.consumes == (load.topic == FILLED)
    assert all(PLANS[size].rounds >= 1 for size in Size)


@pytest.mark.parametrize("mode", ["send-asyncio", "send-gathered", "send-futures", "send-sync", "send-batches"])
def test_a_sending_load_runs_and_counts_what_is_stored(mode: str, orbitmq: ThreadCluster) -> None:
    task = Task(mode, orbitmq.name_server, "T", "G", 0.2, threads=2, batch=10, in_flight=64)
    found = run_load(Program.ORBITMQ, task)
    assert (found.failures, found.failure) == (0, "")
    assert 0 < found.messages <= len(orbitmq.messages("T"))
    assert found.processor_seconds > 0


@pytest.mark.parametrize("mode", ["consume-inline", "consume-coroutine", "consume-threads"])
def test_a_consuming_load_runs_until_everything_is_consumed(mode: str, orbitmq: ThreadCluster) -> None:
    orbitmq.producer().send_batch([Message("T", b"x" * 128) for _ in range(500)])
    found = run_load(Program.ORBITMQ, Task(mode, orbitmq.name_server, "T", "G", 30, messages=500))
    assert found.messages == 500


def test_the_command_lists_its_loads_and_refuses_unknown_ones() -> None:
    command = (sys.executable, "-m", "bench", "client")
    listed = subprocess.run([*command, "--list"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert listed.stdout.splitlines() == [load.name for load in LOADS]
    refused = subprocess.run(
        [*command, "--only", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert refused.returncode == 2
    assert "no load is called nothing" in refused.stderr
