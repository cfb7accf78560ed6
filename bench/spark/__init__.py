"""Spark over OrbitMQ beside Spark over Kafka, on the same rows in the same run: ``python -m bench spark``.

Each system has a server and a Spark driver, all processes on this machine, which take turns: while one system is
measured the other is halted. Like the rest of ``bench`` it reports and judges nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The peers are started in the way the conformance tests start them, and those live with the tests.
sys.path.append(str(Path(__file__).parents[2] / "tests"))
