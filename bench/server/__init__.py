"""Benchmarks of OrbitMQ's server beside the unmodified Apache RocketMQ: ``python -m bench server``.

Both run as processes on this machine and take turns: while one is measured the other is halted, so that it takes
nothing from it. Like the rest of ``bench`` it reports and judges nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The peers are started in the way the conformance tests start them, and those live with the tests.
sys.path.append(str(Path(__file__).parents[2] / "tests"))
