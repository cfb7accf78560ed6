"""The benchmark suite takes turns, compares and reports. No server is started here."""

from __future__ import annotations

import contextlib
import itertools
import json
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
from bench.server.measures import CPU, RATE, Sample  # noqa: E402
from bench.suite import plots  # noqa: E402
from bench.suite.catalog import scenarios  # noqa: E402
from bench.suite.command import PLANS, UNAVAILABLE, available, run_scenario  # noqa: E402
from bench.suite.echo_server import ANSWER  # noqa: E402
from bench.suite.report import SuiteReport, compare_all  # noqa: E402
from bench.suite.rounds import WARM_UP, Case, in_order, interleave, interleave_all  # noqa: E402
from bench.suite.running import keeping  # noqa: E402
from bench.suite.scale import add_shares, too_many  # noqa: E402
from bench.suite.scenario import Bench, Found, Line, System  # noqa: E402
from bench.suite.sending import Sending  # noqa: E402
from bench.suite.sends import LARGEST, groups, matrix  # noqa: E402

from orbitmq.protocol.codes import ResponseCode, SerializeType  # noqa: E402
from orbitmq.protocol.command.fast_encode import SendAnswers  # noqa: E402
from peers.process import PeerError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLES = {
    "OrbitMQ": [Sample({RATE: 80_000.0, CPU: 10.0}), Sample({RATE: 60_000.0, CPU: 12.0})],
    "Apache RocketMQ": [
        Sample({RATE: 40_000.0, CPU: 40.0}),
        Sample({RATE: 60_000.0, CPU: 30.0}, failures=3, failure="code 2: busy"),
    ],
    "echo server": [Sample({RATE: 160_000.0, CPU: 5.0}), Sample({RATE: 120_000.0, CPU: 6.0})],
}


class FakeServer:
    """Something that takes turns, and writes down when."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self._log = log

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        self._log.append(f"{self.name} runs")
        yield
        self._log.append(f"{self.name} halts")


class Measured:
    """A scenario that finds what it is given, or fails on request."""

    name = "measured"
    systems = frozenset({System.ORBITMQ, System.APACHE})

    def __init__(self, found: Found | Exception, space: int = 0) -> None:
        self.space = space
        self.runs: list[Bench] = []
        self._found = found

    def run(self, bench: Bench) -> Found:
        self.runs.append(bench)
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def silent(_what: str) -> None:
    """Progress is not printed."""


def bench(root: Path, *systems: System, size: Size = Size.QUICK) -> Bench:
    return Bench(root, size, 5, 2.0, systems or tuple(System), silent)


def report() -> SuiteReport:
    machine = Machine("a processor", 2, 4.0, "Linux", "ext4", "CPython", "isal", "0.1.0", "abc")
    return SuiteReport(machine, "usual", 2, 2.0, 0.5, source_after="abc")


def filled_report() -> SuiteReport:
    made = report()
    made.skipped.append("Kafka: no Java here")
    lines = [
        Line("latency over time", "OrbitMQ", "ms", [(0.0, 1.0), (1.0, 2.0)], [(0.5, "roll-over"), (0.9, "again")]),
        Line("latency over time", "Apache RocketMQ", "ms", [(0.0, 100.0), (1.0, 3.0)], []),
    ]
    made.found["send"] = Found({"send 128 B": SAMPLES}, lines, ["send 10 B: too small"])
    made.found["pull"] = Found({"pull 128 B": {"OrbitMQ": SAMPLES["OrbitMQ"]}})
    return made


@pytest.mark.parametrize("size", Size)
def test_scenarios_have_names_of_their_own_and_say_what_they_take(size: Size) -> None:
    found = scenarios(size)
    names = [scenario.name for scenario in found]
    assert len(set(names)) == len(names) > 0
    for scenario in found:
        assert System.ORBITMQ in scenario.systems
        assert scenario.space > 0


def test_a_usual_run_has_medians_of_five_rounds_or_more() -> None:
    assert PLANS[Size.USUAL].rounds >= 5
    assert PLANS[Size.FULL].rounds >= 5


def test_every_system_reports_whether_it_is_available() -> None:
    assert set(UNAVAILABLE) == set(System)
    assert [system.title for system in System] == ["OrbitMQ", "Apache RocketMQ", "Kafka", "RabbitMQ"]


def test_a_full_run_has_every_cell_of_the_matrix_once() -> None:
    cells = [*matrix(Size.FULL), LARGEST]
    shapes = {(cell.body, cell.connections, cell.in_flight) for cell in cells}
    assert len(cells) == len(shapes) == 4 * 4 * 2


def test_cells_are_grouped_in_their_order_and_large_ones_stand_alone(tmp_path: Path) -> None:
    cells = matrix(Size.USUAL)
    found = list(groups(cells, bench(tmp_path)))
    assert [cell for group in found for cell in group] == cells
    assert len(found) > 1


def test_every_server_goes_first_in_turn() -> None:
    servers = [FakeServer(name, []) for name in "abc"]
    orders = ["".join(server.name for server in in_order(servers, number)) for number in range(6)]
    assert sorted(order[0] for order in orders[:3]) == sorted(order[0] for order in orders[3:]) == ["a", "b", "c"]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(set(orders)) == 6, "a server always follows the same one"
    assert in_order(servers[:0], 3) == []


def test_two_that_take_turns_swap_places_in_every_round() -> None:
    servers = [FakeServer(name, []) for name in "ab"]
    firsts = [in_order(servers, number)[0].name for number in range(WARM_UP, 6)]
    assert all(one != next_one for one, next_one in itertools.pairwise(firsts))


def test_the_first_round_does_not_count_and_only_one_runs_at_a_time(tmp_path: Path) -> None:
    log: list[str] = []
    servers = [FakeServer(name, log) for name in "ab"]

    def measure(server: FakeServer, number: int) -> Sample:
        log.append(f"{server.name} measured")
        return Sample({RATE: float(number)})

    found = interleave(servers, 3, measure, bench(tmp_path), "a load")
    assert {name: [each.values[RATE] for each in samples] for name, samples in found.items()} == {
        "a": [0, 1, 2],
        "b": [0, 1, 2],
    }
    assert len(log) == 4 * 2 * 3
    for ran, measured, halted in zip(log[::3], log[1::3], log[2::3], strict=True):
        name = ran[0]
        assert (ran, measured, halted) == (f"{name} runs", f"{name} measured", f"{name} halts")


def test_loads_that_are_held_against_each_other_are_measured_in_the_same_rounds_in_turns() -> None:
    seen: list[tuple[str, int]] = []

    def case(name: str) -> Case[FakeServer]:
        def measure(_server: FakeServer, number: int) -> Sample:
            seen.append((name, number))
            return Sample({RATE: 1.0})

        return Case([FakeServer("a", [])], measure)

    found = interleave_all({"one": case("one"), "two": case("two")}, 2, silent)
    assert seen == [("one", -1), ("two", -1), ("one", 0), ("two", 0), ("two", 1), ("one", 1)]
    assert [len(found[name]["a"]) for name in ("one", "two")] == [2, 2]


def test_the_first_system_is_held_against_every_other_round_by_round() -> None:
    rate, cpu = compare_all("send 128 B", SAMPLES)
    assert {name: each.values for name, each in rate.advantages.items()} == {
        "Apache RocketMQ": (2.0, 1.0),
        "echo server": (0.5, 0.5),
    }
    assert cpu.advantages["Apache RocketMQ"].values == (4.0, 2.5)


def test_what_was_measured_without_the_first_system_has_no_advantage() -> None:
    (row, _) = compare_all("send 128 B", {"Apache RocketMQ": SAMPLES["Apache RocketMQ"]})
    assert row.advantages == {}
    assert row.row.figures["Apache RocketMQ"].median == 50_000


def test_a_system_is_held_against_its_own_rate_where_it_has_both() -> None:
    samples = {
        "few": {"OrbitMQ": [Sample({RATE: 200.0}), Sample({RATE: 100.0})]},
        "many": {
            "OrbitMQ": [Sample({RATE: 150.0}), Sample({RATE: 90.0})],
            "Apache RocketMQ": [Sample({RATE: 1.0})],
        },
    }
    add_shares(samples, "few", ["many"], "with few")
    (row,) = (row for row in compare_all("many", samples["many"]) if row.row.measure.unit == "%")
    assert row.row.measure.name == "messages, share of that with few"
    assert row.row.figures["OrbitMQ"].values == (75.0, 90.0)
    assert "Apache RocketMQ" not in row.row.figures


def test_only_a_broker_that_keeps_files_open_can_have_too_many_queues() -> None:
    assert too_many(System.ORBITMQ, 10_000_000) is None
    assert too_many(System.APACHE, 8) is None
    assert "this machine allows" in (too_many(System.APACHE, 10_000_000) or "")


def test_a_report_says_what_failed_and_what_was_left_out() -> None:
    assert filled_report().remarks() == [
        "not measured: Kafka: no Java here",
        "not measured: send: send 10 B: too small",
        "send 128 B: Apache RocketMQ failed 3 requests, the first with code 2: busy",
    ]


def test_a_report_is_written_as_json() -> None:
    written = json.loads(json.dumps(filled_report().as_json()))
    assert written["systems"] == ["OrbitMQ", "Apache RocketMQ"]
    rate, cpu = written["scenarios"]["send"]["rows"]
    assert rate["systems"]["OrbitMQ"] == {
        "min": 60_000,
        "median": 70_000,
        "max": 80_000,
        "rounds": [80_000, 60_000],
    }
    assert cpu["times_better_than"]["Apache RocketMQ"]["median"] == 3.25
    assert written["scenarios"]["send"]["lines"][0]["marks"] == [[0.5, "roll-over"], [0.9, "again"]]


def test_a_report_is_written_as_markdown_with_a_table_of_all_rates() -> None:
    lines = filled_report().as_markdown().splitlines()
    head = "| scenario | load | OrbitMQ | Apache RocketMQ | echo server | × Apache RocketMQ | × echo server |"
    at = lines.index(head)
    assert lines[at + 2].startswith("| send | send 128 B | 70,000 (60,000–80,000) | 50,000 (40,000–60,000) |")
    assert lines[at + 3] == "| pull | pull 128 B | 70,000 (60,000–80,000) | – | – | – | – |"
    assert {"## send", "### send 128 B", "## pull"} <= set(lines)


def test_plots_are_drawn_and_named_in_the_report(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = filled_report()
    made.plots = plots.draw(made, tmp_path)
    made.write(tmp_path)
    assert made.plots == {
        "": ["ratios.svg"],
        "send": ["send-rate.svg", "send-cpu.svg", "send-latency-over-time.svg"],
        "pull": ["pull-rate.svg", "pull-cpu.svg"],
    }
    names = {name for files in made.plots.values() for name in files}
    assert {path.name for path in tmp_path.iterdir()} == names | {"report.json", "report.md"}
    text = (tmp_path / "report.md").read_text("utf-8")
    assert all(f"({name})" in text for name in names)


def test_a_scenario_gets_the_systems_it_can_be_run_on(tmp_path: Path) -> None:
    scenario, made = Measured(Found({})), report()
    run_scenario(scenario, bench(tmp_path), made)
    assert scenario.runs[0].systems == [System.ORBITMQ, System.APACHE]
    assert list(made.found) == ["measured"]


@pytest.mark.parametrize("error", [PeerError("it did not start\n--- its log"), OSError("no such address")])
def test_a_scenario_that_fails_is_reported_and_the_run_goes_on(tmp_path: Path, error: Exception) -> None:
    made = report()
    run_scenario(Measured(error), bench(tmp_path), made)
    assert made.skipped == [f"measured: {str(error).splitlines()[0]}"]
    assert made.found == {}


def test_a_scenario_without_its_systems_or_its_disk_is_left_out_by_name(tmp_path: Path) -> None:
    scenario, made = Measured(Found({}), space=1 << 60), report()
    run_scenario(scenario, bench(tmp_path, System.KAFKA), made)
    run_scenario(scenario, bench(tmp_path), made)
    assert scenario.runs == []
    assert made.skipped[0] == "measured: it is none for Kafka"
    assert "GiB" in made.skipped[1]


def test_a_system_that_cannot_be_had_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str | None:
        raise PeerError("it could not be fetched\nand this is why")

    monkeypatch.setitem(UNAVAILABLE, System.APACHE, lambda: "no Java here")
    monkeypatch.setitem(UNAVAILABLE, System.KAFKA, broken)
    made = report()
    assert available((System.ORBITMQ, System.APACHE, System.KAFKA), made) == [System.ORBITMQ]
    assert made.skipped == ["Apache RocketMQ: no Java here", "Kafka: it could not be fetched"]


def test_what_was_found_is_kept_when_a_run_is_reported_to_end() -> None:
    found = Found({})

    def measure() -> None:
        found.samples["one"] = {}
        raise KeyboardInterrupt

    with keeping(found):
        measure()
    assert list(found.samples) == ["one"]
    assert found.skipped == ["the rest: the run was stopped"]


def test_sends_of_several_shapes_have_names_that_tell_them_apart() -> None:
    assert Sending(64 * 1024, 8, 64).name == "send 64 KiB, 8 × 64"
    assert Sending(128, 8, 8, batch=32).name == "send 128 B in batches of 32, 8 × 8"
    assert Sending(128, 8, 64, topics=50, queues=1000).topic != Sending(128, 8, 64).topic


def test_an_echo_is_a_frame_as_large_as_the_answer_to_a_send() -> None:
    answers = SendAnswers(store_host=bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F)), region="DefaultRegion", trace_on=True)
    key = b"7F000001000012345678000000000000"
    frame = answers.encode(SerializeType.JSON, 1_000_000, ResponseCode.SUCCESS, 0, 100_000, 0, key)
    assert len(ANSWER) == len(frame)
    assert json.loads(ANSWER[8:])["extFields"] == json.loads(frame[8:])["extFields"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "nothing"), "no scenario is called nothing"),
        (("--quick", "--full"), "quick or full"),
        (("--dir", "/no/such/folder"), "is not a directory"),
        (("--out", "/dev/null/out"), "cannot be made"),
        (("--system", "activemq"), "activemq"),
    ],
)
def test_what_the_command_cannot_do_is_refused(arguments: tuple[str, ...], message: str) -> None:
    command = (sys.executable, "-m", "bench", "suite", *arguments)
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert message in refused.stderr


def test_the_command_lists_its_scenarios() -> None:
    command = (sys.executable, "-m", "bench", "suite", "--list", "--only", "send")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    names = [scenario.name for scenario in scenarios(Size.USUAL) if "send" in scenario.name]
    assert [line[:32].strip() for line in listed.stdout.splitlines()] == names
