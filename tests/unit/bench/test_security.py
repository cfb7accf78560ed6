"""The cost of access control and TLS is judged beside Apache RocketMQ. No server is started here."""

from __future__ import annotations

import sys

from support.paths import PROJECT

sys.path.append(str(PROJECT))

from bench.machine import Machine
from bench.security.command import PROTECTIONS, SHAPES
from bench.security.report import BARS, ENCRYPTED, SIGNED, SecurityReport, load_name
from bench.server.measures import RATE, Sample

NAMES = ["OrbitMQ", "Apache RocketMQ"]


def report(**rates: tuple[float, float]) -> SecurityReport:
    """The report of a run with these rates of both systems at 8 × 64."""
    machine = Machine("a processor", 2, 4.0, "Linux", "ext4", "CPython", "isal", "0.1.0", "abc")
    made = SecurityReport(machine, "usual", NAMES, [], 0.5, source_after="abc")
    made.samples = {
        load_name("8 × 64", name): {
            system: [Sample({RATE: rate})] for system, rate in zip(NAMES, both, strict=True)
        }
        for name, both in rates.items()
    }
    return made


def test_bars_are_told_with_the_figures() -> None:
    made = report(**{SIGNED: (300.0, 90.0), ENCRYPTED: (110.0, 100.0)})
    assert [verdict.met for verdict in made.verdicts()] == [True, False]
    said = "\n".join(made.as_json()["remarks"])
    assert "sends with signatures, 8 × 64: 3.33 times Apache's rate; the bar is 3, met" in said
    assert "sends over TLS, 8 × 64: 1.10 times Apache's rate; the bar is 1.2, missed" in said


def test_a_run_of_one_system_judges_nothing() -> None:
    made = report(**{SIGNED: (300.0, 90.0)})
    made.samples = {name: {"OrbitMQ": systems["OrbitMQ"]} for name, systems in made.samples.items()}
    assert made.verdicts() == []


def test_every_bar_is_of_a_load_of_the_command() -> None:
    names = {load_name(f"{shape[0]} × {shape[1]}", each.name) for shape in SHAPES for each in PROTECTIONS}
    assert {load_name(bar.subject, bar.scenario) for bar in BARS} <= names
