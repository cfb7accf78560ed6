"""Data version of a table that peers keep copies of, and pages of such a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import DataVersion
from orbitmq.protocol.codes import ResponseCode
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.store import Clock


def first_version(clock: Clock) -> DataVersion:
    """The version of a table that was never changed."""
    return DataVersion(0, 0, clock.now_ms())


def next_version(version: DataVersion, clock: Clock) -> DataVersion:
    """The version after one more change. A new object, so caches that hold the old one detect the change."""
    return DataVersion(version.counter + 1, version.state_version, clock.now_ms())


def version_of_epoch(version: DataVersion, epoch: int, clock: Clock) -> DataVersion:
    """The version of a master's table: name servers keep to the master with the newest epoch."""
    return DataVersion(version.counter + 1, epoch, clock.now_ms())


def page_of(
    names: Iterable[str],
    version: DataVersion,
    *,
    asked_version: str | None,
    start: int | None,
    most: int | None,
    page_size: int | None,
) -> list[str] | None:
    """The names in the page that a peer requests; None for all, which peers before 5.3.4 request.

    Pages are cut from the sorted names. A peer with another version of the table restarts at the first page.
    """
    if page_size is None or (asked_version is None and start is None and most is None):
        return None
    size = page_size if most is None else min(page_size, most)
    if size <= 0:
        raise RequestRefusedError(f"invalid page size {size}", ResponseCode.INVALID_PARAMETER)
    text = (asked_version or "").strip()
    is_known = bool(text) and DataVersion.decode(text) == version
    first = max(start or 0, 0) if is_known else 0
    return sorted(names)[first : first + size]
