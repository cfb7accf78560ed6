"""Progress of all groups as a broker sends it, decoded without a value for each of its parts.

Thousands of groups have hundreds of thousands of queues in a cluster. RocketMQ writes the queues as objects in the
place of map keys, which only the tolerant reader of JSON takes, some 25 microseconds each. Here one pass makes
texts of these keys, and the document is plain JSON. What does not have the form that brokers write is read as any
other body.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from orbitmq.admin.group.model import GroupLag, GroupTotals, QueueLag
from orbitmq.protocol.bodies import ConsumeStatsList
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads

if TYPE_CHECKING:
    from collections.abc import Iterator

Row: TypeAlias = tuple[str, str, int, int, int, int, int]
"""The first fields of a QueueLag."""

_QUEUE_KEY = re.compile(rb'(?<=[{,])\{"brokerName":"([^"\\]*+)","queueId":(\d++),"topic":"([^"\\]*+)"\}:')
_TEXT_KEY = rb'"\3\\u0000\1\\u0000\2":'
_SEPARATOR = "\0"


@dataclasses.dataclass(slots=True)
class GroupProgress:
    """The progress of a group in all its queues, in any order."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    consume_tps: float = 0.0

    def lag(self, group: str) -> GroupLag:
        """The same queue by queue, sorted."""
        return GroupLag(group, tuple(itertools.starmap(QueueLag, sorted(self.rows))), self.consume_tps)

    def totals(self) -> GroupTotals:
        """The sums that lists show."""
        lag = inflight = 0
        topics = set()
        for topic, _, _, end, consumed, pulled, _ in self.rows:
            topics.add(topic)
            lag += max(end - consumed, 0)
            inflight += max(pulled - consumed, 0)
        return GroupTotals(lag, inflight, self.consume_tps, tuple(sorted(topics)))


def add_progress(groups: dict[str, GroupProgress], body: bytes) -> None:
    """Add what one broker sends to the progress of the groups. Raises ProtocolError."""
    try:
        parts = None if b"$ref" in body else list(_parts(loads(_QUEUE_KEY.sub(_TEXT_KEY, body))))
    except (AttributeError, KeyError, TypeError, ValueError, ProtocolError):
        parts = None
    for group, rows, consume_tps in _typed_parts(body) if parts is None else parts:
        found = groups.get(group)
        if found is None:
            groups[group] = GroupProgress(rows, consume_tps)
        else:
            found.rows += rows
            found.consume_tps += consume_tps


def _parts(plain: Any) -> Iterator[tuple[str, list[Row], float]]:
    """Groups with the rows of their queues. Raises many errors for what has another form."""
    for entry in plain["consumeStatsList"]:
        for group, parts in entry.items():
            rows: list[Row] = []
            consume_tps = 0.0
            for part in parts:
                consume_tps += part["consumeTps"]
                for key, ends in part["offsetTable"].items():
                    topic, broker_name, queue_id = key.split(_SEPARATOR)
                    end, consumed = ends["brokerOffset"], ends["consumerOffset"]
                    pulled, time_ms = ends["pullOffset"], ends["lastTimestamp"]
                    if not type(end) is type(consumed) is type(pulled) is type(time_ms) is int:
                        raise TypeError
                    rows.append((topic, broker_name, int(queue_id), end, consumed, pulled, time_ms))
            yield group, rows, consume_tps


def _typed_parts(body: bytes) -> Iterator[tuple[str, list[Row], float]]:
    """The same of any body that RocketMQ's own tools can read."""
    for entry in ConsumeStatsList.decode(body).consume_stats_list:
        for group, parts in entry.items():
            rows = [
                (
                    *(queue.topic, queue.broker_name, queue.queue_id),
                    *(ends.broker_offset, ends.consumer_offset, ends.pull_offset, ends.last_timestamp),
                )
                for part in parts
                for queue, ends in part.offset_table.items()
            ]
            yield group, rows, sum(part.consume_tps for part in parts)
