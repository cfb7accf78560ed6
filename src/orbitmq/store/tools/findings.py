"""Findings of a verification: every kind is counted in full, positions are listed up to a limit."""

from __future__ import annotations

import collections
import dataclasses
import enum

MAX_PER_KIND = 100
"""Positions listed of each kind; a ruined store must not fill the memory."""


class Kind(enum.StrEnum):
    """The kinds of damage."""

    LOG_FILE = "logFile"
    LOG_DAMAGE = "logDamage"
    BODY_CRC = "bodyCrc"
    PROPERTY_CRC = "propertyCrc"
    QUEUE_FILE = "queueFile"
    UNIT_MISSING = "unitMissing"
    UNIT_WRONG = "unitWrong"
    UNIT_STRAY = "unitStray"
    UNIT_PAST_END = "unitPastEnd"
    INDEX_FILE = "indexFile"
    INDEX_MISSING = "indexMissing"
    INDEX_WRONG = "indexWrong"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Kind.LOG_FILE: "log files missing or of another size",
    Kind.LOG_DAMAGE: "places in the log that are no record",
    Kind.BODY_CRC: "records whose body fails its CRC",
    Kind.PROPERTY_CRC: "records that fail the CRC in their properties",
    Kind.QUEUE_FILE: "queue files of another size",
    Kind.UNIT_MISSING: "records without a unit in their queue",
    Kind.UNIT_WRONG: "queue units with a wrong size or tags code",
    Kind.UNIT_STRAY: "queue units that lead to no record of their queue",
    Kind.UNIT_PAST_END: "queue units that lead past the end of the log",
    Kind.INDEX_FILE: "index files that contradict themselves",
    Kind.INDEX_MISSING: "keys that the index lacks",
    Kind.INDEX_WRONG: "index entries that lead to no record with such a key",
}


@dataclasses.dataclass(slots=True, kw_only=True)
class Finding:
    """One damaged position."""

    kind: Kind
    message: str
    path: str
    count: int = 1
    """Number of affected records, units or keys."""
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


class Findings:
    """All damage found so far."""

    def __init__(self) -> None:
        self.counts: collections.Counter[Kind] = collections.Counter()
        self.named: list[Finding] = []
        self._named_of: collections.Counter[Kind] = collections.Counter()

    def add(
        self,
        kind: Kind,
        message: str,
        path: str,
        count: int = 1,
        *,
        physical_offset: int | None = None,
        topic: str | None = None,
        queue_id: int | None = None,
        queue_offset: int | None = None,
    ) -> None:
        self.counts[kind] += count
        if self._named_of[kind] >= MAX_PER_KIND:
            return
        self._named_of[kind] += 1
        self.named.append(
            Finding(
                kind=kind,
                message=message,
                path=path,
                count=count,
                physical_offset=physical_offset,
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
            )
        )
