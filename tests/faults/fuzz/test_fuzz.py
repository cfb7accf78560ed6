"""A short run of the fuzzer, and what it promises about its frames."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from faults.fuzz.frames import BATCH_FRAMES, Fate, batch, one_by_one
from faults.fuzz.run import TESTS, Plan, Run
from faults.fuzz.safety import CANARY, PROBE
from faults.fuzz.server import faults_in
from faults.fuzz.templates import templates
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path

FRAMES = 20_000
SEED = 20_261
SLOWEST = 5.0
"""Seconds: far more than promised, for machines that do something else as well."""
MEMORY = 400 << 20


def test_servers_survive_fuzzed_frames_with_all_services(tmp_path: Path) -> None:
    outcome = Run(Plan(SEED, 0, FRAMES, tmp_path, memory=MEMORY), lambda _: None).run()
    assert not outcome.problems, "\n".join(outcome.problems)
    assert outcome.tally.frames == FRAMES
    assert outcome.canary.answers > 100
    assert outcome.canary.slowest < SLOWEST


def test_the_same_seed_makes_the_same_frames_in_another_process() -> None:
    said = "from faults.fuzz.frames import batch; print(hash(tuple(batch(3, 17).frames)))"
    command = [sys.executable, "-c", said]
    environment = {"PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "0"}
    hashes = {subprocess.check_output(command, env=environment) for _ in range(2)}
    assert len(hashes) == 1
    assert batch(3, 17).frames != batch(3, 18).frames != batch(4, 18).frames


def test_every_request_code_has_a_template() -> None:
    assert set(RequestCode) <= templates().keys()


def test_no_frame_names_what_belongs_to_the_canary_or_a_probe() -> None:
    for number in range(50):
        sent = b"".join(batch(SEED, number).frames)
        assert CANARY.encode() not in sent
        assert PROBE.encode() not in sent


def test_a_batch_sent_frame_by_frame_has_the_same_frames_in_order() -> None:
    made = batch(SEED, 5)
    single = one_by_one(made)
    assert single.frames == made.frames
    assert len(single.flights) == BATCH_FRAMES
    assert [flight.fate for flight in single.flights if flight.fate is not Fate.OPEN] == [
        flight.fate for flight in made.flights if flight.fate is not Fate.OPEN
    ]


def test_a_traceback_in_the_log_is_a_fault_with_its_place() -> None:
    log = (
        "2026-01-01 00:00:00.000 ERROR   broker: a service failed\n"
        "Traceback (most recent call last):\n"
        '  File "/x/orbitmq/broker/pop_revive.py", line 12, in turn\n'
        "    raise ValueError\n"
        "ValueError: no number\n"
        "2026-01-01 00:00:00.000 INFO    broker: fine\n"
        "2026-01-01 00:00:00.000 ERROR   remoting: request 10 of 127.0.0.1:1 failed: KeyError: 'x' (/x/send.py:3)\n"
    )
    traceback, handler = faults_in(log)
    assert traceback.startswith("ValueError: no number (pop_revive.py:12)")
    assert handler == "request 10 failed: KeyError: 'x' (/x/send.py:3)"
