"""Rebuilding a store by tasks without Spark's JVM, and beside it by the broker's own code."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.spark.pipelines.rebuild.job import rebuild_with
from orbitmq.store import LocalDisk
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.rebuild import exclusive, rebuild
from orbitmq.testing import ManualClock
from support.store.stores import T0, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orbitmq.spark.pipelines.progress import Summary

T = TypeVar("T")
R = TypeVar("R")

QUEUES = ("consumequeue", "batchconsumequeue")


def one_by_one(task: Callable[[T], R], items: Sequence[T], doing: str) -> list[R]:
    """Runs tasks in this process, the last one first: they must not depend on each other."""
    results = [task(item) for item in reversed(items)]
    return results[::-1]


def rebuilt(root: str | Path, conf: dict[str, str] | None = None, **options: Any) -> Summary:
    """Rebuild by tasks."""
    return rebuild_with(one_by_one, 2, str(root), conf=conf, **options)


def rebuilt_by_broker(root: str | Path, conf: dict[str, str] | None = None) -> None:
    """Rebuild as ``orbitmq store rebuild`` does."""
    disk = LocalDisk()
    with exclusive(disk, str(root)):
        rebuild(disk, survey(disk, str(root), conf), clock=ManualClock(T0))


def derived(root: str | Path) -> dict[str, Any]:
    """Everything that is made from a log, with the index in the order of its files."""
    found: dict[str, Any] = dict(tree(root, *QUEUES))
    found["index"] = [contents for _, contents in sorted(tree(root, "index").items())]
    with open(os.path.join(root, "checkpoint"), "rb") as file:
        found["checkpoint"] = file.read()
    with open(os.path.join(root, "orbitmq.queues"), "rb") as file:
        found["floor"] = json.load(file)
    return found


def assert_built_alike(
    root: str | Path, beside: str | Path, conf: dict[str, str] | None = None, **options: Any
) -> Summary:
    """Rebuild a store by tasks and a copy of it by the broker's code; all that they made must be the same."""
    shutil.copytree(root, beside)
    summary = rebuilt(root, conf, **options)
    rebuilt_by_broker(beside, conf)
    ours, theirs = derived(root), derived(beside)
    assert ours.keys() == theirs.keys()
    for name, contents in theirs.items():
        assert ours[name] == contents, name
    assert sorted(os.listdir(root)) == sorted(os.listdir(beside))
    return summary
