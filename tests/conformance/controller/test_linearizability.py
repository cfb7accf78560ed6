"""The controller is linearizable: porcupine, a checker in Go, judges the requests of a run with faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from peers.porcupine import available, is_linearizable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEEDS = range(3, 301, 3) if os.environ.get("ORBITMQ_LONG") else [6]
"""Of runs with a controller. In the sixth masters are elected in several epochs."""

Calls = list[dict[str, Any]]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    if reason := available():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("histories")
    found = []
    for seed in SEEDS:
        found.append(folder / f"{seed}.jsonl")
        command = [sys.executable, "-m", "orbitmq.testing.simulation", "--seed", str(seed)]
        command += ["--calls", str(found[-1])]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
    return found


def read(history: Path) -> Calls:
    return [json.loads(line) for line in history.read_text("utf-8").splitlines()]


def test_requests_of_a_run_with_faults_are_linearizable(histories: list[Path]) -> None:
    for history in histories:
        assert is_linearizable(history), history
    assert len({call["found"]["epoch"] for call in answered(read(histories[0]))}) > 1, "there was an election"


def answered(calls: Calls) -> Calls:
    return [call for call in calls if call["operation"] == "read" and call["found"] and call["found"].get("epoch")]


def stale_read(calls: Calls) -> None:
    reads = answered(calls)
    reads[-1]["found"] = reads[0]["found"]


def two_masters_of_an_epoch(calls: Calls) -> None:
    reads = answered(calls)
    reads[-1]["found"] = {**reads[-1]["found"], "master": 99}


def lost_alteration(calls: Calls) -> None:
    done = [call for call in calls if call["operation"] == "alter" and call["found"] and call["found"]["code"] == 0]
    calls.remove(done[0])


@pytest.mark.parametrize("damage", [stale_read, two_masters_of_an_epoch, lost_alteration])
def test_what_no_linearizable_controller_answers_is_found(
    damage: Callable[[Calls], None], histories: list[Path], tmp_path: Path
) -> None:
    calls = read(histories[0])
    damage(calls)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("".join(f"{json.dumps(call)}\n" for call in calls), "utf-8")
    assert not is_linearizable(damaged)
