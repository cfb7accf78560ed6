"""Distribution of test files to the processes of one run, so that all of them have work until the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest

RINGS_OF_PEERS = ("conformance", "spark")
LONGEST = "tests/conformance/slave_sync/test_apache_pairs.py"
"""First of its ring: as the last file it would keep one process busy for minutes while the other one is idle."""


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """A process gets the next file.

    In a ring of real peers it stays until that ring has no more files, so that Spark starts in one process. Then it
    helps with the other ring.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._ring_of_node: dict[object, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(self._next_file(node), last=False)
        super()._assign_work_unit(node)

    def _next_file(self, node: object) -> str:
        first: str = next(iter(self.workqueue))
        if _ring(first) not in RINGS_OF_PEERS:
            return first
        next_of_ring: dict[str, str] = {}
        for file in self.workqueue:
            if file == LONGEST or _ring(file) not in next_of_ring:
                next_of_ring[_ring(file)] = file
        ring = self._ring_of_node.get(node, "")
        if ring not in next_of_ring:
            others = {self._ring_of_node.get(other) for other in self.nodes if other is not node}
            ring = next((ring for ring in next_of_ring if ring not in others), _ring(first))
        self._ring_of_node[node] = ring
        return next_of_ring[ring]


def _ring(file: str) -> str:
    return file.removeprefix("tests/").partition("/")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return FileScheduling(config, log)
