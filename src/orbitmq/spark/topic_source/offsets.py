"""The offsets of a streaming query, as Spark keeps them between batches and in checkpoints.

The JSON is ``{topic: {broker: {queue: next offset}}}``. Spark compares offsets by their text, so the order is
fixed. Of a batch Spark stores only the end. After a crash it asks again for the start of the first batch, and "the
newest message" is another one then. So the end holds the start as well: ``$began``, a name that no topic can have,
has the start of each queue that did not start at the end of the previous batch. In the initial offset of a query
``$began`` is ``here``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.client.query.range_reader import QueueRange
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BEGAN = "$began"
HERE = "here"

Offsets = dict[MessageQueue, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """The position of a query: everything before ``next`` has been read."""

    next: Mapping[MessageQueue, int]
    began: Mapping[MessageQueue, int] = dataclasses.field(default_factory=dict)
    """The start offsets of queues that are new."""
    is_first: bool = False
    """True for the initial offset of a query: nothing has been read."""

    def to_json(self) -> dict[str, object]:
        """The same position has the same text."""
        if self.is_first:
            return {BEGAN: HERE, **_nested(self.next)}
        if self.began:
            return {BEGAN: _nested(self.began), **_nested(self.next)}
        return dict(_nested(self.next))

    @classmethod
    def of_json(cls, given: object) -> Position:
        """A position from a checkpoint. Raises OptionError for an offset of another source."""
        if not isinstance(given, dict):
            raise _foreign(given)
        topics = {name: value for name, value in given.items() if name != BEGAN}
        began = given.get(BEGAN, {})
        if began == HERE:
            return cls(_flat(topics, given), is_first=True)
        return cls(_flat(topics, given), _flat(began, given))

    def ranges_to(self, end: Position) -> list[QueueRange]:
        """The ranges from this position to ``end``, sorted by queue."""
        if end.is_first:
            return []
        found = []
        for queue, stop in sorted(end.next.items()):
            start = end.began.get(queue, self.next.get(queue))
            if start is not None and start < stop:
                found.append(QueueRange(queue, start, stop))
        return found

    def topics(self) -> set[str]:
        return {queue.topic for queue in self.next}


def described(queues: Iterable[MessageQueue], most: int = 5) -> str:
    """Queues for a message to users, at most ``most`` by name."""
    ordered = sorted(queues)
    words = [f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name}" for queue in ordered[:most]]
    more = len(ordered) - most
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")


def _nested(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return found


def _flat(nested: object, whole: object) -> Offsets:
    found: Offsets = {}
    for topic, brokers in _items(nested, whole):
        for broker, queues in _items(brokers, whole):
            for queue, offset in _items(queues, whole):
                if not queue.isdecimal() or type(offset) is not int or offset < 0:
                    raise _foreign(whole)
                found[MessageQueue(topic, broker, int(queue))] = offset
    return found


def _items(value: object, whole: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _foreign(whole)
    yield from value.items()


def _foreign(given: object) -> OptionError:
    text = str(given)
    return OptionError(
        f"the checkpoint holds an offset that is not one of topics, {text[:100]}{'…' if len(text) > 100 else ''}: "
        "it belongs to another query, so take another checkpointLocation"
    )
