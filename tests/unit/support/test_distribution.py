"""Test processes share the files of a run: all have work until the end, and Spark starts in one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from support.distribution import LONGEST, FileScheduling


class Node:
    """A test process, which runs what it is given at once."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def files_of_each(files: list[str], seconds: dict[str, int]) -> list[list[str]]:
    """The files that each of two processes runs, three tests each, if a test takes so many seconds."""
    config: Any = SimpleNamespace(
        option=SimpleNamespace(loadscopereorder=False), getvalue=lambda _: ["popen", "popen"]
    )
    scheduling = FileScheduling(config, None)
    tests = [f"{file}::test_{number}" for file in files for number in range(3)]
    nodes: list[Any] = [Node("gw0"), Node("gw1")]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, tests)
    scheduling.schedule()
    done, clock = [0, 0], [0, 0]
    while any(done[which] < len(node.given) for which, node in enumerate(nodes)):
        busy = [which for which, node in enumerate(nodes) if done[which] < len(node.given)]
        which = min(busy, key=clock.__getitem__)
        index = nodes[which].given[done[which]]
        done[which] += 1
        clock[which] += seconds.get(tests[index].partition("::")[0], 1)
        scheduling.mark_test_complete(nodes[which], index)
    return [list(dict.fromkeys(tests[index].partition("::")[0] for index in node.given)) for node in nodes]


def ring(name: str, count: int) -> list[str]:
    return [f"tests/{name}/test_{number}.py" for number in range(count)]


def test_each_process_keeps_to_a_ring_of_peers_and_helps_with_the_other_one_then() -> None:
    files = [*ring("unit", 4), *ring("conformance", 9), *ring("spark", 3)]
    first, second = files_of_each(files, {})
    assert sorted(first + second) == sorted(files)
    of_spark = [file for file in second if "spark" in file]
    assert of_spark == ring("spark", 3)
    assert second[-1].startswith("tests/conformance/")
    assert abs(len(first) - len(second)) <= 1


def test_the_longest_file_of_the_peers_is_the_first() -> None:
    files = [*ring("conformance", 3), LONGEST, *ring("spark", 2)]
    first, second = files_of_each(files, {LONGEST: 20})
    assert first[0] == LONGEST
    assert second[:2] == ring("spark", 2)


def test_the_other_rings_are_run_in_their_order() -> None:
    files = [*ring("unit", 5), *ring("cluster", 4)]
    first, second = files_of_each(files, {})
    assert first == sorted(first, key=files.index)
    assert second == sorted(second, key=files.index)
