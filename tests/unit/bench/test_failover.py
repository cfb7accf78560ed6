"""What ``python -m bench failover`` makes of a log and of the times of sends."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from support.paths import PROJECT

# The benchmarks are no part of what is installed.
sys.path.append(str(PROJECT))

from bench.failover.command import _joined, draw
from bench.failover.run import Failover, _logged
from bench.suite.plots import unavailable

if TYPE_CHECKING:
    from pathlib import Path

LOG = """\
2026-11-19 15:52:24.479 WARNING broker: ha: disconnected from master 127.0.0.1:37922 at 1237656: closed
2026-11-19 15:52:24.480 WARNING controller: broker vm (id 2, cluster DefaultCluster) is dead: connection closed
2026-11-19 15:52:24.483 INFO    controller: election: broker group vm: master 3 (127.0.0.1:37931), epoch 2
2026-11-19 15:52:24.565 INFO    broker: controller: this broker (id 3) is master now, master is 3, after 78 ms
2026-11-19 15:52:24.567 INFO    nameserver: broker registration: vm (127.0.0.1:37931, id 0) registered
2026-11-19 15:52:24.594 INFO    broker: ha: sync state set is {1, 3}, epoch 5
"""


def test_the_log_tells_what_happened() -> None:
    found = _logged(LOG)
    assert [what for _, what in found] == [
        "controller: connection closed of a broker",
        "controller elects replica 3",
        "replica 3 is master",
        "name server knows it",
        "in sync: 1, 3",
    ]
    assert found[-1][0] - found[0][0] == pytest.approx(0.114, abs=0.001)
    assert len(_joined(found)) == 2


def test_the_outage_is_the_longest_time_without_an_acknowledgement() -> None:
    found = Failover("kill", acknowledged=[-3.0, -0.5, -0.01, 0.2, 0.21, 0.3])
    assert found.outage == (-0.01, 0.2)
    assert Failover("kill").outage == (0.0, 0.0)


@pytest.mark.skipif(unavailable() is not None, reason="matplotlib is not installed")
def test_it_is_drawn(tmp_path: Path) -> None:
    times = [number / 100 for number in range(-300, 300) if not 0 <= number < 15]
    draw(Failover("kill", times, [0.1], [(0.0, "kill -9 of the master")]), tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text().count("<path") > 10
