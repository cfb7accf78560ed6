"""Offset bounds: the start and the end of a read as a queue edge, a time, or an offset for each queue."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import logging
import re
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.spark.errors import DataLossError, OptionError
from orbitmq.spark.topic_source.offsets import described

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.cluster import Cluster
    from orbitmq.spark.topic_source.offsets import Offsets

log = logging.getLogger("orbitmq.spark")

CLOCK_SLACK_MS = 60_000
"""The slack for a broker's clock that was set back while it stored messages.

Offsets are looked up and files are skipped by time, as if store times only grew. After a clock was set back they do
not. So a little more is read than the time range, and each message is compared as well.
"""

EARLIEST = -2
LATEST = -1
"""Special offsets in JSON, as in Spark's Kafka source."""


class QueueEdge(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """The first message that was stored at this time or later."""

    ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class PerQueue:
    """An offset or a time for each queue, or for all queues of a broker or of a topic."""

    values: Mapping[tuple[str, ...], int]
    """By topic; by topic and broker; by topic, broker and queue."""
    is_time: bool = False

    @classmethod
    def of(cls, option: str, text: str, *, is_time: bool = False) -> PerQueue:
        """``{topic: {broker: {queue: number}}}``, with one number where all below it have the same."""
        values = dict(_leaves(option, (), json_object(option, text)))
        if not values:
            raise OptionError(f"{option} names no queue")
        for path, value in values.items():
            least = 0 if is_time or (len(path) < 3 and value >= 0) else EARLIEST
            if value < least:
                raise OptionError(f"{option} cannot be used: {value} is not {'a time' if is_time else 'an offset'}")
            if not is_time and len(path) < 3 and value >= 0:
                raise OptionError(
                    f"{option} cannot be used: an offset belongs to a queue, and {'/'.join(path)} is not a queue; "
                    'write {"topic": {"broker": {"0": 123}}}'
                )
            if len(path) == 3 and not path[2].isdecimal():
                raise OptionError(f"{option} cannot be used: {path[2]!r} is not a number of a queue")
        return cls(values, is_time)

    def find(self, queue: MessageQueue) -> int | None:
        path = (queue.topic, queue.broker_name, str(queue.queue_id))
        for length in (3, 2, 1):
            if (value := self.values.get(path[:length])) is not None:
                return value
        return None

    @property
    def has_latest(self) -> bool:
        return not self.is_time and LATEST in self.values.values()

    @property
    def has_earliest(self) -> bool:
        return not self.is_time and EARLIEST in self.values.values()


Where: TypeAlias = QueueEdge | Moment | PerQueue


def _leaves(option: str, path: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(value, dict) and len(path) < 3:
        for name, below in value.items():
            yield from _leaves(option, (*path, name), below)
    elif type(value) is int:
        yield path, value
    else:
        raise OptionError(
            f'{option} cannot be read at {"/".join(path)}: write {{"topic": {{"broker": {{"0": number}}}}}}'
        )


def json_object(option: str, text: str) -> dict[str, object]:
    """Raises OptionError."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{option} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise OptionError(f'{option} is not a JSON object: it begins with a topic, as in {{"topic": …}}')
    return found


def milliseconds(option: str, text: str) -> int:
    """Raises OptionError."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise OptionError(f"{option}={text} is not a time: it is in milliseconds since 1970")
    return int(text)


def moment_of(option: str, text: str) -> Moment:
    """A time in ISO 8601; without a zone it is UTC. Raises OptionError."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{option}={text} is not possible: it is earliest, latest, a time like 2026-01-31T12:00:00Z, or JSON "
            'like {"topic": {"broker": {"0": 123}}}'
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    return Moment(round(found.timestamp() * 1000))


# From options to offsets


@dataclasses.dataclass(frozen=True, slots=True)
class OffsetBound:
    """The start or the end of a read, and the fallback where it is not available."""

    option: str
    where: Where
    late: str = "latest"
    """For a time after the last message of all queues: ``error``, or ``latest``. It is not an error if only some
    queues have no message since then: queues are not used evenly."""
    fail_on_data_loss: bool = True

    def resolve(self, cluster: Cluster, bounds: Mapping[MessageQueue, Bounds]) -> Offsets:
        """The offset of each queue. Raises OptionError, DataLossError."""
        where = self.where
        if where is QueueEdge.EARLIEST:
            return {queue: ends.min for queue, ends in bounds.items()}
        if where is QueueEdge.LATEST:
            return {queue: ends.max for queue, ends in bounds.items()}
        if isinstance(where, Moment):
            return self._by_time(cluster, bounds, dict.fromkeys(bounds, where.ms))
        assert isinstance(where, PerQueue)
        values = self._each(where, bounds)
        if where.is_time:
            return self._by_time(cluster, bounds, values)
        return {queue: self._inside(queue, value, bounds[queue]) for queue, value in values.items()}

    def _each(self, where: PerQueue, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
        """The value of each queue. The option has to name all queues, and no other."""
        found = {queue: where.find(queue) for queue in bounds}
        if missing := [queue for queue, value in found.items() if value is None]:
            raise OptionError(
                f"{self.option} has to name every queue that is read: {described(missing)} is missing"
            )
        for path in where.values:
            if not any(_is_below(queue, path) for queue in bounds):
                raise OptionError(f"{self.option} names {'/'.join(path)}, which is not read or does not exist")
        return {queue: value for queue, value in found.items() if value is not None}

    def _inside(self, queue: MessageQueue, value: int, ends: Bounds) -> int:
        if value == EARLIEST:
            return ends.min
        if value == LATEST:
            return ends.max
        if ends.min <= value <= ends.max:
            return value
        what = (
            f"{self.option} names offset {value} of {described([queue])}, which has those from {ends.min} "
            f"to {ends.max}"
        )
        if self.fail_on_data_loss:
            raise DataLossError(f"{what}; with failOnDataLoss=false the nearest available offset is used")
        nearest = min(max(value, ends.min), ends.max)
        log.warning("offset bounds: out of range, using %d: %s", nearest, what)
        return nearest

    def _by_time(
        self, cluster: Cluster, bounds: Mapping[MessageQueue, Bounds], times: Mapping[MessageQueue, int]
    ) -> Offsets:
        found: Offsets = {}
        for time in sorted(set(times.values())):
            queues = [queue for queue, one in times.items() if one == time]
            found.update(cluster.offsets_at(queues, time))
        # A message may have arrived after the bounds were read.
        found = {queue: min(max(found[queue], ends.min), ends.max) for queue, ends in bounds.items()}
        if self.late == "error" and bounds and all(found[queue] >= ends.max for queue, ends in bounds.items()):
            raise OptionError(
                f"{self.option} is a time after everything in {described(bounds)}: take an earlier one, or "
                "startingOffsetsByTimestampStrategy=latest"
            )
        return found


def _is_below(queue: MessageQueue, path: tuple[str, ...]) -> bool:
    return (queue.topic, queue.broker_name, str(queue.queue_id))[: len(path)] == path
