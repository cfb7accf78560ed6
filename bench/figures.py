"""A measured figure with its spread, and the settings every scenario gets."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Size(enum.Enum):
    """The amount of work of a run."""

    QUICK = "quick"
    """Seconds, to see that everything works; the figures say little."""
    USUAL = "usual"
    FULL = "full"
    """The usual run and what takes minutes and tens of gigabytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The parameters of a scenario: an empty directory of its own, and the amount of work."""

    directory: str
    size: Size = Size.USUAL

    def choose(self, quick: int, usual: int, full: int | None = None) -> int:
        """The number for this size of run."""
        if self.size is Size.QUICK:
            return quick
        return usual if full is None or self.size is Size.USUAL else full


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report: what was measured, and its value in every round, in their order."""

    subject: str
    measure: str
    unit: str
    values: tuple[float, ...]

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "measure": self.measure,
            "unit": self.unit,
            "min": self.low,
            "median": self.median,
            "max": self.high,
            "rounds": len(self.values),
        }


def figure(subject: str, measure: str, unit: str, values: float | Sequence[float]) -> Figure:
    """A figure of one value or of one per round."""
    return Figure(subject, measure, unit, (values,) if isinstance(values, int | float) else tuple(values))
