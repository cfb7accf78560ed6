"""Test broker: handlers are called in memory, without a cluster."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import anyio
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from orbitmq.client.message import ReceivedMessage
from orbitmq.faststream.broker import OrbitMQBroker
from orbitmq.faststream.message import Delivery
from orbitmq.faststream.producer import REQUEST_SECONDS, BrokerProducer
from orbitmq.filter import SQL92, TAG, compile_subscription
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.message.record import MAGIC_V1, Record

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from orbitmq.client.message import Message
    from orbitmq.faststream.publisher import OrbitMQPublisher
    from orbitmq.faststream.response import OrbitMQPublishCommand
    from orbitmq.faststream.subscriber import OrbitMQSubscriber

_HOST = bytes(8)


class TestOrbitMQBroker(TestBroker[OrbitMQBroker, EnterType], broker=OrbitMQBroker):
    """Calls handlers in memory: topics, tags and SQL filters as in a cluster, one member of each group.

    ::

        async with TestOrbitMQBroker(broker) as br:
            await br.publish({"id": 7}, "orders", tags="paid")
            bill.mock.assert_called_once_with({"id": 7})
    """

    def create_publisher_fake_subscriber(
        self, broker: OrbitMQBroker, publisher: OrbitMQPublisher
    ) -> tuple[OrbitMQSubscriber, bool]:
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        return broker.subscriber(publisher.topic, persistent=False), False

    @contextlib.contextmanager
    def _patch_producer(self, broker: OrbitMQBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, FakeProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: OrbitMQBroker, *args: Any, **kwargs: Any) -> MagicMock:  # type: ignore[override]  # noqa: ARG002
        return MagicMock()


def _subscribers(brokers: Sequence[OrbitMQBroker]) -> Iterator[OrbitMQSubscriber]:
    return (cast("OrbitMQSubscriber", one) for broker in brokers for one in broker.subscribers)


class FakeProducer(BrokerProducer):
    """Passes messages to the subscribers of the test brokers."""

    def __init__(self, broker: OrbitMQBroker, brokers: Sequence[OrbitMQBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self._brokers = brokers
        self._offset = 0
        self.serializer = broker.config.fd_config._serializer

    async def publish(self, cmd: OrbitMQPublishCommand) -> Any:
        message = await self.encoded(cmd)
        for subscriber in self._receivers(message):
            await subscriber.process_message(self._delivery(message))

    async def request(self, cmd: OrbitMQPublishCommand) -> Delivery:
        message = await self.encoded(cmd)
        for subscriber in self._receivers(message):
            with anyio.fail_after(REQUEST_SECONDS if cmd.timeout is None else cmd.timeout):
                result = await subscriber.process_message(self._delivery(message))
            body, content_type = await self.codec.encode(result.body, self.serializer)
            cmd.headers, cmd.correlation_id = result.headers, result.correlation_id
            return self._delivery(cmd.message(body, content_type))
        raise SubscriberNotFound

    def _receivers(self, message: Message) -> Iterator[OrbitMQSubscriber]:
        """The subscribers whose filters match, one of each group."""
        groups = set()
        properties = encode(message.properties)
        for subscriber in _subscribers(self._brokers):
            wanted = subscriber.subscription
            kind, text = (TAG, wanted.tags or "*") if wanted.sql is None else (SQL92, wanted.sql)
            if (
                subscriber.topic == message.topic
                and subscriber.group not in groups
                and compile_subscription(kind, text).matches_properties(properties)
            ):
                groups.add(subscriber.group)
                yield subscriber

    def _delivery(self, message: Message) -> Delivery:
        self._offset += 1
        properties = {**message.properties, names.UNIQUE_KEY: f"test-{self._offset}"}
        now = round(time.time() * 1000)
        record = Record(
            physical_offset=self._offset,
            size=len(message.body),
            magic=MAGIC_V1,
            topic=message.topic,
            queue_id=0,
            queue_offset=self._offset,
            flag=message.flag,
            sys_flag=0,
            born_timestamp=now,
            born_host=_HOST,
            store_timestamp=now,
            store_host=_HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
            body=message.body,
            properties=encode(properties),
        )
        return Delivery(ReceivedMessage(record, "test"))
