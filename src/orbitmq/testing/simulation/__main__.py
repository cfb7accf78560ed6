"""``python -m orbitmq.testing.simulation``: runs of whole clusters in virtual time, with faults from a seed.

A failing run prints what was violated, the fewest faults with which it still fails, and the command that repeats
it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.testing.simulation.faults.injection import from_json, to_json
from orbitmq.testing.simulation.run import Report, run, shrink

if TYPE_CHECKING:
    from collections.abc import Sequence

HASH_SEED = "0"
"""Of Python: the order of sets of strings depends on it, and with it the run."""

ADDR_NO_RANDOMIZE = 0x0040000
"""Of Linux: no random addresses. The order of sets of other objects depends on their addresses."""

MAX_LISTED = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds. Returns the exit code: 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m orbitmq.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="number of runs (default: 20)")
    parser.add_argument("--seed", type=int, metavar="S", help="the first seed (default: 1); alone, the only one")
    parser.add_argument("--faults", metavar="JSON", help="these faults instead of those of the seed")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument("--log", action="store_true", help="print the log of the run, with virtual times")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for fewer faults after a failure")
    parser.add_argument(
        "--calls", type=Path, metavar="FILE", help="write the requests to the controller, as JSON lines; one seed"
    )
    given = parser.parse_args(arguments)
    faults = None if given.faults is None else from_json(given.faults)
    first = 1 if given.seed is None else given.seed
    is_single = given.seed is not None and "--seeds" not in (arguments or sys.argv)
    seeds = range(first, first + (1 if is_single or faults is not None else given.seeds))
    good, totals = True, Totals()
    if given.calls is not None and len(seeds) > 1:
        parser.error("--calls writes those of one run: give --seed too")
    if given.log or given.workers <= 1 or len(seeds) == 1:
        reports = (run(seed, faults, log_to=print if given.log else None, calls_to=given.calls) for seed in seeds)
        for report in reports:
            good &= _tell(report, shrinks=not given.no_shrink)
            totals.add(report)
    else:
        with concurrent.futures.ProcessPoolExecutor(given.workers, max_tasks_per_child=20) as pool:
            for report in pool.map(run, seeds):
                good &= _tell(report, shrinks=not given.no_shrink)
                totals.add(report)
    print(totals)
    return 0 if good else 1


class Totals:
    """Sums over all runs."""

    def __init__(self) -> None:
        self.runs = self.failed = self.faults = self.acknowledged = self.callbacks = 0
        self.virtual = self.real = 0.0

    def add(self, report: Report) -> None:
        self.runs += 1
        self.failed += not report.is_good
        self.faults += len(report.faults)
        self.acknowledged += report.acknowledged
        self.callbacks += report.callbacks
        self.virtual += report.virtual_seconds
        self.real += report.real_seconds

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.failed} failed: {self.faults} faults, {self.acknowledged} acknowledged "
            f"messages, {self.callbacks} callbacks, {self.virtual / 3600:.2f} virtual hours in {self.real:.0f} s "
            f"({self.virtual / max(self.real, 0.001):.0f} times real time)"
        )


def _tell(report: Report, *, shrinks: bool) -> bool:
    line = (
        f"seed {report.seed}: {len(report.faults)} faults, {report.acknowledged} of {report.sent} acknowledged, "
        f"{report.consumed} consumed, {report.virtual_seconds:.0f} s in {report.real_seconds:.1f} s, "
        f"run {report.fingerprint}"
    )
    print(line if report.is_good else f"{line}: FAILED", flush=True)
    if report.is_good:
        return True
    for violation in report.violations[:MAX_LISTED]:
        print(f"  {violation}")
    faults = shrink(report.seed, report.faults) if shrinks and report.faults else report.faults
    for fault in faults:
        print(f"  with the fault: {fault}")
    command = f"python -m orbitmq.testing.simulation --seed {report.seed}"
    print(f"  again: {command} --faults '{json.dumps(json.loads(to_json(faults)))}'", flush=True)
    return False


def _fix_addresses() -> None:
    """Let the next program have the same addresses in every run. Some containers do not allow it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        _fix_addresses()
        os.execv(sys.executable, [sys.executable, "-m", "orbitmq.testing.simulation", *sys.argv[1:]])  # noqa: S606
    sys.exit(main())
