"""Figures of the benchmark suite over the life of a broker, without a server."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pytest

from support.paths import PROJECT

ROOT = PROJECT
# The benchmarks are no part of what is installed.
sys.path.append(str(ROOT))

from bench.figures import Size  # noqa: E402
from bench.server.measures import OWN  # noqa: E402
from bench.server.usage import Resident  # noqa: E402
from bench.suite.brokers import counts  # noqa: E402
from bench.suite.catalog import scenarios  # noqa: E402
from bench.suite.evicting import disk_reads, drop_store  # noqa: E402
from bench.suite.rollovers import P999_TITLE, WORST_TITLE, appeared, lines  # noqa: E402
from bench.suite.soaks import OWN_EARLY, growth  # noqa: E402
from bench.suite.watching import watched  # noqa: E402

from peers.process import PeerError  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from bench.server.systems import Server

READER = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    pages = mmap.mmap(file.fileno(), 0)
for _ in sys.stdin:
    print(sum(pages[at] for at in range(0, len(pages), mmap.PAGESIZE)), flush=True)
"""
SIZE = 8 << 20


def test_a_log_file_is_new_when_it_was_not_there_before() -> None:
    seen = [
        (99.0, frozenset({"00"})),
        (99.5, frozenset({"00", "01"})),
        (100.5, frozenset({"00", "01"})),
        (101.0, frozenset({"00", "01", "02"})),
        (102.0, frozenset({"01", "02"})),
    ]
    assert appeared(seen, 100.0) == [1.0]


def test_a_round_is_drawn_with_its_log_files() -> None:
    series = [{"seconds": 0.1, "count": 5, "p50_us": 100, "p999_us": 2000, "max_us": 3000}]
    worst, high = lines("OrbitMQ", series, [0.15])
    assert (worst.title, worst.points, worst.marks) == (WORST_TITLE, [(0.1, 3.0)], [(0.15, "new log file")])
    assert (high.title, high.points) == (P999_TITLE, [(0.1, 2.0)])


@pytest.mark.parametrize("looks", [1, 2, 100])
def test_memory_early_and_late_is_reported_of_however_few_looks(looks: int) -> None:
    found = growth([Resident(500.0, 100.0 + number) for number in range(looks)])
    assert found[OWN_EARLY] <= found[OWN] <= 100 + looks


def test_one_broker_is_compared_with_two_at_least() -> None:
    for size in Size:
        assert counts(size)[:2] == [1, 2]


@pytest.mark.parametrize("size", list(Size))
def test_every_scenario_has_a_name_of_its_own(size: Size) -> None:
    names = [scenario.name for scenario in scenarios(size)]
    assert len(set(names)) == len(names)
    assert {"consume cold", "long poll", "recovery", "roll-over", "soak", "brokers"} <= set(names)


def test_what_is_gone_is_watched_no_longer() -> None:
    answers = iter(["a", "b"])

    def look() -> str:
        try:
            return next(answers)
        except StopIteration:
            raise FileNotFoundError from None

    with watched(look, 0.001) as watch:
        while len(watch.seen) < 2:
            pass
    assert [value for _, value in watch.seen] == ["a", "b"]


class _Reader:
    """A process that has a store's file mapped, as far as a server goes."""

    def __init__(self, store: Path, process: subprocess.Popen[str]) -> None:
        self.store = store
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._process.stdout.readline()


def test_a_store_that_was_dropped_is_read_from_the_disk(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "0").write_bytes(os.urandom(SIZE))
    command = [sys.executable, "-c", READER, str(store / "0")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        reader = _Reader(store, process)
        server = cast("Server", reader)
        try:
            reader.read()
            before = disk_reads(server)
            left = drop_store(server)
            reader.read()
            reads = disk_reads(server).since(before)
        except (PeerError, PermissionError) as error:
            pytest.skip(str(error))
        finally:
            process.kill()
    if left:
        pytest.skip("this file system keeps its files in memory")
    # Another process may have read a part of it, but hardly half.
    assert reads.bytes > SIZE // 2
