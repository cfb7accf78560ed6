"""How far a query is in its queues, as Spark keeps it between batches and in checkpoints.

The JSON is ``{topic: {broker: {queue: next offset}}}``. Spark compares offsets by their text, so it is always made
in one order. Of a batch Spark keeps only where it ends, and after a crash asks anew where the first one started;
"the newest message" is another one then. So what a start does not tell is told by the end: under ``$began``, a name
that no topic can have, it says where each queue started that did not start where the offset before it ends. In an
offset that no batch has read up to, the first of a query, ``$began`` is ``here``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.client.range_reading import QueueRange
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BEGAN = "$began"
HERE = "here"

Offsets = dict[MessageQueue, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """What is read of each queue: everything before ``next``."""

    next: Mapping[MessageQueue, int]
    began: Mapping[MessageQueue, int] = dataclasses.field(default_factory=dict)
    """Where queues started that were not there before."""
    is_first: bool = False
    """Nothing has been read up to here: it is where a query starts."""

    def to_json(self) -> dict[str, object]:
        """The same position gives the same text."""
        if self.is_first:
            return {BEGAN: HERE, **_nested(self.next)}
        if self.began:
            return {BEGAN: _nested(self.began), **_nested(self.next)}
        return dict(_nested(self.next))

    @classmethod
    def of_json(cls, given: object) -> Position:
        """A position that Spark has kept. Raises OptionError for what is none of ours."""
        if not isinstance(given, dict):
            raise _foreign(given)
        topics = {name: value for name, value in given.items() if name != BEGAN}
        began = given.get(BEGAN, {})
        if began == HERE:
            return cls(_flat(topics, given), is_first=True)
        return cls(_flat(topics, given), _flat(began, given))

    def ranges_to(self, end: Position) -> list[QueueRange]:
        """What there is to read from here to there, in the order of the queues."""
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
    """Some queues in words."""
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
        f"the checkpoint holds an offset that is none of topics, {text[:100]}{'…' if len(text) > 100 else ''}: "
        "it belongs to another query, so take another checkpointLocation"
    )
