"""Interface of a scenario: its parameters and its result."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from bench.server.measures import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.figures import Size

Samples: TypeAlias = dict[str, dict[str, list[Sample]]]
"""By load and by name of the system, in the order of the rounds."""


class System(enum.Enum):
    """The systems, by the name on the command line; the order is that of the report's columns."""

    ORBITMQ = "orbitmq"
    APACHE = "apache"
    KAFKA = "kafka"
    RABBITMQ = "rabbitmq"

    @property
    def title(self) -> str:
        """The name in reports, which is that of a started ``Server`` too."""
        return _TITLES[self]


_TITLES = {
    System.ORBITMQ: "OrbitMQ",
    System.APACHE: "Apache RocketMQ",
    System.KAFKA: "Kafka",
    System.RABBITMQ: "RabbitMQ",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Something over time, to be drawn."""

    title: str
    """Lines of one title share a plot."""
    system: str
    unit: str
    points: list[tuple[float, float]]
    """Seconds, value."""
    marks: list[tuple[float, str]]
    """Seconds, what happened then."""


@dataclasses.dataclass(slots=True)
class Found:
    """The result of one scenario."""

    samples: Samples
    lines: list[Line] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    """What was not measured, and why, one sentence each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bench:
    """The parameters of a run for every scenario."""

    root: Path
    """A temporary folder, removed at the end; a scenario makes a folder in it and removes that when it is done."""
    size: Size
    rounds: int
    seconds: float
    """Of one round."""
    systems: Sequence[System]
    """The requested systems that are available, OrbitMQ first."""
    tell: Callable[[str], None]


class Scenario(Protocol):
    """Something to measure on every system that can do it."""

    @property
    def name(self) -> str:
        """The name that ``--only`` matches."""
        ...

    @property
    def systems(self) -> frozenset[System]:
        """Those that it can be run on; ``run`` leaves out the others of ``bench.systems`` by itself."""
        ...

    @property
    def space(self) -> int:
        """Bytes of disk that it takes at most."""
        ...

    def run(self, bench: Bench, /) -> Found:
        """Measure. What cannot be measured at all fails as a ``PeerError``; a part of it is ``skipped``."""
        ...
