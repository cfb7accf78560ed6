"""Changes: what an operation alters, before and after, so that it can be shown without being done."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One value that an operation alters. ``before`` is None for what is created, ``after`` for what is removed."""

    target: str
    """The thing that has the value, with its place: ``topic orders at broker-a``."""
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.target}: {self.field} = {self.after}"
        if self.after is None:
            return f"{self.target}: {self.field} removed (was {self.before})"
        return f"{self.target}: {self.field} {self.before} -> {self.after}"


def differences(
    target: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, only: Iterable[str] = ()
) -> list[Change]:
    """The changes between two sets of values. None stands for a thing that does not exist."""
    old, new = before or {}, after or {}
    fields = list(only) or sorted(old.keys() | new.keys())
    return [Change(target, name, old.get(name), new.get(name)) for name in fields if old.get(name) != new.get(name)]
