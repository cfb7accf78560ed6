"""TopicPublishInfo: the writable queues of a topic, each with the preallocated part of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.producer.queue_selector import RoundRobin, index_by_hash
from orbitmq.client.producer.wire import send_template
from orbitmq.client.validation import check_queue
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.names import REPLY_TOPIC_POSTFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.instance.routes import Route
    from orbitmq.client.message import Message
    from orbitmq.client.producer.config import ProducerConfig
    from orbitmq.client.producer.latency_fault import LatencyFaults
    from orbitmq.client.producer.queue_selector import Selector
    from orbitmq.remoting import Connection


class BrokerLink:
    """Address of a broker and the connection to it."""

    __slots__ = ("address", "broker_name", "connection")

    def __init__(self, broker_name: str, address: str | None) -> None:
        self.broker_name = broker_name
        self.address = address
        """None if the broker has no known master."""
        self.connection: Connection | None = None

    def ready(self) -> Connection | None:
        """The connection, if it is open and writable."""
        connection = self.connection
        if connection is None or connection.is_closing or not connection.is_writable:
            return None
        return connection


class Target:
    """A queue to send to. ``queue`` has the application's topic, ``template`` the broker's."""

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
        """Whether the request template depends on the message. Ordinary queues need no further check."""
        self._make_template = make_template
        self.template = make_template(queue)
        self._batch_template = b""

    @property
    def batch_template(self) -> bytes:
        if not self._batch_template:
            self._batch_template = self._make_template(self.queue, is_batch=True)
        return self._batch_template

    def reply_template(self) -> bytes:
        """Template for replies, which have their own request code."""
        return self._make_template(self.queue, is_reply=True)

    def retry_template(self, reconsume_times: int, max_reconsume_times: int | None) -> bytes:
        """Template for messages of a retry topic, with their number of retries."""
        return self._make_template(
            self.queue, reconsume_times=reconsume_times, max_reconsume_times=max_reconsume_times
        )


class TopicPublishInfo:
    """One topic of a producer. It is rebuilt when the route changes; ``round_robin`` stays."""

    __slots__ = ("_by_queue", "_make_template", "queues", "round_robin", "route", "targets", "topic", "wire_topic")

    def __init__(
        self, topic: str, wire_topic: str, group: str, config: ProducerConfig, route: Route, round_robin: RoundRobin
    ) -> None:
        """``wire_topic`` and ``group`` have the namespace."""
        self.topic = topic
        self.wire_topic = wire_topic
        self.route = route
        self.round_robin = round_robin

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

    def choose(self, last_broker: str | None, faults: LatencyFaults | None) -> Target:
        """The next queue, round robin. After a failure of ``last_broker``, preferably on another broker."""
        if faults is not None:
            return self.round_robin.next_good(self.targets, last_broker, faults)
        if last_broker is None:
            return self.round_robin.next(self.targets)
        return self.round_robin.next_elsewhere(self.targets, last_broker)

    def has_other_broker(self, broker_name: str) -> bool:
        return any(target.broker_name != broker_name for target in self.targets)

    def fixed(
        self, message: Message, queue: MessageQueue | None, selector: Selector | None, arg: object
    ) -> Target | None:
        """The queue that the caller chose: directly, by selector or by sharding key. None: free choice."""
        if queue is not None:
            return self.target_of(queue)
        if selector is not None:
            chosen = selector(self.queues, message, arg)
            if chosen is None:
                raise InvalidMessageError("the selector returned None: it has to choose one of the queues")
            return self.target_of(chosen)
        key = message.properties.get(names.SHARDING_KEY)
        if key:
            return self.targets[index_by_hash(key, len(self.targets))]
        return None

    def target_of(self, queue: MessageQueue) -> Target:
        """The target of a queue, which need not be in the publish route."""
        found = self._by_queue.get(queue)
        if found is None:
            check_queue(queue, self.topic)
            link = BrokerLink(queue.broker_name, self.route.address(queue.broker_name))
            found = Target(queue, link, self._make_template)
        return found
