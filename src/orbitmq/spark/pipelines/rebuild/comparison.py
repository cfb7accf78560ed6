"""Comparison of the queues and the index of a store with its log, byte for byte.

Two differences are none: units of records that have expired, which no log tells of, and addresses of extension
units in the place of tags codes, which only a broker with ``enableConsumeQueueExt`` writes.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import numpy as np

from orbitmq.spark.pipelines.rebuild.shuffle_files import BATCH_UNIT, UNIT
from orbitmq.store.consumequeue.ext import is_ext_address

if TYPE_CHECKING:
    import numpy.typing as npt

BLOCK = 16 << 20


@dataclasses.dataclass(slots=True)
class Compared:
    """The result of the comparison."""

    files: int = 0
    """How many files were compared."""
    differences: list[str] = dataclasses.field(default_factory=list)
    """One sentence for each file that is not as it should be."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What could not be compared."""


def compare(root: str, built: str, log_start: int) -> Compared:
    """Compare a store with what was built from its log, which begins at an offset. Raises OSError."""
    compared = Compared()
    for folder, kind in (("consumequeue", UNIT), ("batchconsumequeue", BATCH_UNIT)):
        theirs, ours = _queue_files(os.path.join(root, folder)), _queue_files(os.path.join(built, folder))
        for name in sorted(theirs | ours):
            compared.files += 1
            path = os.path.join(folder, name)
            if name not in theirs:
                compared.differences.append(f"{path} is missing")
            elif (
                found := _unit_difference(root, built if name in ours else None, path, kind, log_start)
            ) is not None:
                compared.differences.append(f"{path}: {found}")
    _compare_index(compared, root, built, log_start)
    return compared


def _queue_files(root: str) -> set[str]:
    found = set()
    for directory, _, names in os.walk(root):
        found |= {os.path.relpath(os.path.join(directory, name), root) for name in names if name.isdigit()}
    return found


def _unit_difference(
    root: str, built: str | None, path: str, kind: np.dtype[np.void], log_start: int
) -> str | None:
    theirs = _units(os.path.join(root, path), kind)
    ours = np.zeros(len(theirs), kind) if built is None else _units(os.path.join(built, path), kind)
    if len(ours) != len(theirs):
        return f"it has room for {len(theirs):,} units and should have it for {len(ours):,}"
    same = theirs.view(f"V{kind.itemsize}") == ours.view(f"V{kind.itemsize}")
    for number in np.flatnonzero(~same).tolist():
        their, our = theirs[number], ours[number]
        is_expired = int(their["size"]) > 0 and 0 <= int(their["offset"]) < log_start and not int(our["offset"])
        is_extended = (
            kind == UNIT
            and is_ext_address(int(their["code"]))
            and (their["offset"], their["size"]) == (our["offset"], our["size"])
        )
        if not is_expired and not is_extended:
            return f"unit {number} is {_result(their)} and should be {_result(our)}"
    return None


def _units(path: str, kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
    count = os.path.getsize(path) // kind.itemsize
    return np.fromfile(path, kind, count)


def _result(unit: np.void) -> str:
    if not int(unit["size"]):
        return "empty"
    return f"(offset {int(unit['offset'])}, size {int(unit['size'])}, tags code {int(unit['code'])})"


def _compare_index(compared: Compared, root: str, built: str, log_start: int) -> None:
    theirs, ours = (
        [os.path.join(folder, "index", name) for name in sorted(_queue_files(os.path.join(folder, "index")))]
        for folder in (root, built)
    )
    if log_start:
        compared.notes.append("the index was not compared: its oldest entries are of records that have expired")
        return
    if len(theirs) != len(ours):
        compared.differences.append(f"the index has {len(theirs)} files and should have {len(ours)}")
    for their, our in zip(theirs, ours, strict=False):
        compared.files += 1
        if (at := _first_difference(their, our)) is not None:
            compared.differences.append(f"{os.path.relpath(their, root)} differs from byte {at:,} on")


def _first_difference(one: str, other: str) -> int | None:
    with open(one, "rb") as first, open(other, "rb") as second:
        at = 0
        while True:
            left, right = first.read(BLOCK), second.read(BLOCK)
            if left != right:
                count = min(len(left), len(right))
                unlike = np.flatnonzero(
                    np.frombuffer(left, np.uint8, count) != np.frombuffer(right, np.uint8, count)
                )
                return at + (int(unlike[0]) if len(unlike) else count)
            if not left:
                return None
            at += len(left)
