"""Routes: the queues of a topic for writing and reading, and the addresses of their brokers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import MessageQueue, QueueData, TopicRouteData
from orbitmq.protocol.message.flags import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MASTER = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """The route of a topic. Queues have the order of the Java client, which selectors rely on."""

    topic: str
    data: TopicRouteData
    publish_queues: Sequence[MessageQueue]
    subscribe_queues: Sequence[MessageQueue]
    addresses: Mapping[str, Mapping[int, str]]
    """By broker name and broker id."""
    is_ordered: bool = False
    is_model: bool = False
    """Copied from the default topic, for a topic that does not exist yet."""

    @classmethod
    def of(cls, topic: str, data: TopicRouteData, *, max_queues: int | None = None) -> Route:
        """``max_queues`` is for a topic that a send creates after the model of this route's topic."""
        addresses = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
        queue_datas = sorted(data.queue_datas, key=lambda queues: queues.broker_name)
        ordered = data.order_topic_conf or ""
        publish = (
            _ordered_queues(topic, ordered)
            if ordered
            else _publish_queues(topic, queue_datas, addresses, max_queues)
        )
        subscribe = [
            MessageQueue(topic, queues.broker_name, number)
            for queues in queue_datas
            if queues.perm & PERM_READ
            for number in range(
                queues.read_queue_nums if max_queues is None else min(max_queues, queues.read_queue_nums)
            )
        ]
        return cls(topic, data, publish, subscribe, addresses, bool(ordered), max_queues is not None)

    @property
    def why_not_writable(self) -> str:
        """The reason why there are no ``publish_queues``."""
        brokers = sorted({queues.broker_name for queues in self.data.queue_datas if queues.perm & PERM_WRITE})
        missing = [broker_name for broker_name in brokers if MASTER not in self.addresses.get(broker_name, {})]
        if not missing:
            return "its queues do not take messages"
        return f"the master of {', '.join(missing)} is missing; it may be elected or restarted in a moment"

    def address(self, broker_name: str, broker_id: int = MASTER, *, only_this: bool = True) -> str | None:
        """Address of a broker. Falls back from a missing slave to the next, without ``only_this`` to any."""
        replicas = self.addresses.get(broker_name, {})
        found = replicas.get(broker_id)
        if found is None and broker_id != MASTER:
            found = replicas.get(broker_id + 1)
        if found is None and not only_this and replicas:
            found = replicas[min(replicas)]
        return found

    def has_data(self, data: TopicRouteData) -> bool:
        """True if the route was built from this data, in any order of brokers."""
        return _sorted(self.data) == _sorted(data)


def _sorted(data: TopicRouteData) -> TopicRouteData:
    return dataclasses.replace(
        data,
        queue_datas=sorted(data.queue_datas, key=lambda queues: queues.broker_name),
        broker_datas=sorted(data.broker_datas, key=lambda broker: broker.broker_name),
    )


def _publish_queues(
    topic: str,
    queue_datas: Sequence[QueueData],
    addresses: Mapping[str, Mapping[int, str]],
    max_queues: int | None,
) -> list[MessageQueue]:
    """Writable queues: only those of brokers with a master."""
    return [
        MessageQueue(topic, queues.broker_name, number)
        for queues in queue_datas
        if queues.perm & PERM_WRITE and MASTER in addresses.get(queues.broker_name, {})
        for number in range(
            queues.write_queue_nums if max_queues is None else min(max_queues, queues.read_queue_nums)
        )
    ]


def _ordered_queues(topic: str, conf: str) -> list[MessageQueue]:
    """Queues of ``broker:count;broker:count``, in that order."""
    queues = []
    for part in conf.split(";"):
        broker, _, count = part.partition(":")
        if broker and count.isdigit():
            queues += [MessageQueue(topic, broker, number) for number in range(int(count))]
    return queues
