"""``make fuzz``: fuzzed frames against real servers, with a canary beside them and probes after them."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from faults.fuzz import sanitized
from faults.fuzz.run import Plan, Run, expensive, summary, to_standard_output


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000, help="how many frames to send")
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same frames")
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first frame, to repeat a part of a run"
    )
    parser.add_argument("--lanes", type=int, default=4, help="connections that send at the same time")
    parser.add_argument("--memory", type=int, default=1024, help="MiB of memory that the servers may use")
    parser.add_argument("--sanitize", action="store_true", help="with a kernel that checks memory and arithmetic")
    parser.add_argument("--one-by-one", action="store_true", help="measure the processor time of each frame")
    parser.add_argument("--expensive", type=int, default=10, help="how many of the most expensive to show")
    parser.add_argument("--without", type=int, nargs="*", default=[], help="request codes that are not sent")
    parser.add_argument("--folder", type=Path, default=None, help="keep data, logs and the report there")
    asked = parser.parse_args()
    seed = random.randrange(1 << 32) if asked.seed is None else asked.seed
    with tempfile.TemporaryDirectory(prefix="orbitmq-fuzz-") as temporary:
        folder = asked.folder or Path(temporary)
        home = folder / "servers"
        home.mkdir(parents=True)
        environment = sanitized.build(folder) if asked.sanitize else {}
        to_standard_output(f"seed {seed}, frames {asked.first} to {asked.first + asked.frames - 1}")
        plan = Plan(
            seed,
            asked.first,
            asked.frames,
            home,
            asked.lanes,
            asked.memory << 20,
            environment,
            asked.one_by_one,
            frozenset(asked.without),
        )
        run = Run(plan, to_standard_output)
        outcome = run.run()
        to_standard_output(summary(outcome))
        to_standard_output("most expensive:\n  " + "\n  ".join(expensive(outcome, asked.expensive)))
        if outcome.suspects:
            file = Path(f"fuzz-{seed}-{asked.first}.jsonl")
            again = run.save_suspects(file)
            to_standard_output(f"frames in flight meanwhile are in {file}; to send them again: {again}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
