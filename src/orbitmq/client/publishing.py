"""A topic as a producer sees it: the queues it may send to, each with the prepared part of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.queue_choice import InTurn, index_by_hash
from orbitmq.client.send_requests import send_template
from orbitmq.client.validation import check_queue
from orbitmq.protocol import property_names as names
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.names import REPLY_TOPIC_POSTFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.fault_latency import FaultLatency
    from orbitmq.client.messages import Message
    from orbitmq.client.producer_config import ProducerConfig
    from orbitmq.client.queue_choice import Selector
    from orbitmq.client.routes import Route
    from orbitmq.remoting import Connection


class BrokerLink:
    """Where a broker is, and the connection to it once there is one."""

    __slots__ = ("address", "broker_name", "connection")

    def __init__(self, broker_name: str, address: str | None) -> None:
        self.broker_name = broker_name
        self.address = address
        """None: no master of this name is known."""
        self.connection: Connection | None = None

    def ready(self) -> Connection | None:
        """The connection, if it takes a message at once."""
        connection = self.connection
        if connection is None or connection.is_closing or not connection.is_writable:
            return None
        return connection


class Target:
    """A queue to send to. ``queue`` is as the application knows it, ``template`` as the broker does."""

    __slots__ = (
        "_batch_template",
        "_make_template",
        "broker_name",
        "is_for_replies",
        "is_for_retries",
        "is_special",
        "link",
        "queue",
        "template",
    )

    def __init__(self, queue: MessageQueue, link: BrokerLink, make_template: Callable[..., bytes]) -> None:
        self.queue = queue
        self.broker_name = queue.broker_name
        self.link = link
        self.is_for_retries = queue.topic.startswith(RETRY_PREFIX)
        self.is_for_replies = queue.topic.endswith(REPLY_TOPIC_POSTFIX)
        self.is_special = self.is_for_retries or self.is_for_replies
        """Whether the request depends on the message; for most queues it does not, and nothing more is asked."""
        self._make_template = make_template
        self.template = make_template(queue)
        self._batch_template = b""

    @property
    def batch_template(self) -> bytes:
        if not self._batch_template:
            self._batch_template = self._make_template(self.queue, is_batch=True)
        return self._batch_template

    def reply_template(self) -> bytes:
        """For replies, which have a request of their own."""
        return self._make_template(self.queue, is_reply=True)

    def retry_template(self, reconsume_times: int, max_reconsume_times: int | None) -> bytes:
        """For messages to a retry topic, which say how often they were consumed."""
        return self._make_template(
            self.queue, reconsume_times=reconsume_times, max_reconsume_times=max_reconsume_times
        )


class Publishing:
    """One topic of a producer. It is made anew when the route changes; ``in_turn`` goes on."""

    __slots__ = ("_by_queue", "_make_template", "in_turn", "queues", "route", "targets", "topic", "wire_topic")

    def __init__(
        self, topic: str, wire_topic: str, group: str, config: ProducerConfig, route: Route, in_turn: InTurn
    ) -> None:
        """``wire_topic`` and ``group`` are what the broker calls them."""
        self.topic = topic
        self.wire_topic = wire_topic
        self.route = route
        self.in_turn = in_turn

        def make_template(queue: MessageQueue, **more: Any) -> bytes:
            return send_template(
                group, wire_topic, config.create_topic_key, config.default_topic_queue_nums, queue, **more
            )

        self._make_template = make_template
        links = {
            name: BrokerLink(name, route.address(name)) for name in {q.broker_name for q in route.publish_queues}
        }
        self.queues = [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in route.publish_queues]
        self.targets = [Target(queue, links[queue.broker_name], make_template) for queue in self.queues]
        self._by_queue = {target.queue: target for target in self.targets}

    def choose(self, last_broker: str | None, faults: FaultLatency | None) -> Target:
        """The next queue in turn: on another broker than the last one, if that failed and there is another."""
        if faults is not None:
            return self.in_turn.next_good(self.targets, last_broker, faults)
        if last_broker is None:
            return self.in_turn.next(self.targets)
        return self.in_turn.next_elsewhere(self.targets, last_broker)

    def has_other_broker(self, broker_name: str) -> bool:
        return any(target.broker_name != broker_name for target in self.targets)

    def fixed(
        self, message: Message, queue: MessageQueue | None, selector: Selector | None, arg: object
    ) -> Target | None:
        """The queue that the sender wants, by name, by function or by sharding key; None if any will do."""
        if queue is not None:
            return self.target_of(queue)
        if selector is not None:
            chosen = selector(self.queues, message, arg)
            if chosen is None:
                raise InvalidMessageError("the selector has to choose one of the queues, and returned None")
            return self.target_of(chosen)
        key = message.properties.get(names.SHARDING_KEY)
        if key:
            return self.targets[index_by_hash(key, len(self.targets))]
        return None

    def target_of(self, queue: MessageQueue) -> Target:
        """A queue by name, which need not be among those that are chosen from."""
        found = self._by_queue.get(queue)
        if found is None:
            check_queue(queue, self.topic)
            link = BrokerLink(queue.broker_name, self.route.address(queue.broker_name))
            found = Target(queue, link, self._make_template)
        return found
