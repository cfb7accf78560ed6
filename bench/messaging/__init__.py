"""Benchmarks of RocketMQ's special messages beside the unmodified Apache RocketMQ: ``python -m bench messages``.

Timers, delay levels, transactions and POP, under the same load for both systems, which take turns as in
``bench.server``: while one is measured the other is halted.
"""

from __future__ import annotations

# It makes the tests' peers importable.
import bench.server  # noqa: F401
