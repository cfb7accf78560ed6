"""Subscriber: a topic, a filter and handlers, in a consumer group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import IncorrectState
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from orbitmq.client.consumer.result import ConsumeResult
from orbitmq.faststream.config import OrbitMQBrokerConfig, SubscriberConfig, SubscriberDescription
from orbitmq.faststream.message import Delivery, decode, parse_message
from orbitmq.faststream.producer import ReplyPublisher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream._internal.endpoint.subscriber.call_item import CallsCollection
    from faststream.message import StreamMessage

    from orbitmq.client.message import ReceivedMessage


class OrbitMQSubscriber(SubscriberUsecase[Delivery]):
    """Passes the messages of a topic to FastStream's handlers, and their outcome to RocketMQ."""

    _outer_config: OrbitMQBrokerConfig

    def __init__(
        self,
        config: SubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Delivery],
    ) -> None:
        config.parser, config.decoder = parse_message, decode
        super().__init__(config, specification, calls)
        self.subscription = config.subscription
        self._waiting: asyncio.Queue[Delivery] = asyncio.Queue(1)
        self._is_iterated = False

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.subscription.topic}"

    @property
    def group(self) -> str:
        return self.subscription.group or self._outer_config.group

    async def start(self) -> None:
        await super().start()
        if self.calls or self._is_iterated:
            await self._join()
        self._post_start()

    async def _join(self) -> None:
        consumers = self._outer_config.consumers
        if consumers is None:
            raise IncorrectState("include the router in a broker")
        await consumers.add(self)

    async def stop(self) -> None:
        await super().stop()
        if self._outer_config.consumers is not None:
            await self._outer_config.consumers.remove(self)

    async def handle(self, message: ReceivedMessage) -> ConsumeResult:
        """The handler of the consumer."""
        delivery = Delivery(message)
        if self._is_iterated:
            await self._waiting.put(delivery)
            return ConsumeResult.SUCCESS
        await self.consume(delivery)
        if delivery.result is None:
            # With a manual policy, a handler that has decided nothing has not consumed it.
            return ConsumeResult.LATER
        return delivery.result

    def _make_response_publisher(self, message: StreamMessage[Delivery]) -> Sequence[PublisherProto]:
        return (ReplyPublisher(self._outer_config.producer, message.raw_message.message),)

    # One by one, without a handler

    async def _ready(self) -> None:
        if self.calls:
            raise IncorrectState("a subscriber with a handler cannot be read one by one")
        if not self._is_iterated:
            self._is_iterated = True
            await self._join()

    async def _parsed(self, delivery: Delivery) -> StreamMessage[Delivery]:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        message = await process_msg(
            msg=delivery,
            middlewares=(one(delivery, context=context) for one in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        assert message is not None
        return message

    async def get_one(self, *, timeout: float = 5) -> StreamMessage[Delivery] | None:  # noqa: ASYNC109
        """The next message, consumed with this call; None after ``timeout`` seconds."""
        await self._ready()
        try:
            async with asyncio.timeout(timeout):
                delivery = await self._waiting.get()
        except TimeoutError:
            return None
        return await self._parsed(delivery)

    async def __aiter__(self) -> AsyncIterator[StreamMessage[Delivery]]:
        await self._ready()
        while True:
            yield await self._parsed(await self._waiting.get())

    # Logs

    def get_log_context(self, message: StreamMessage[Delivery] | None) -> dict[str, str]:
        return {"topic": self.topic, "group": self.group, "message_id": getattr(message, "message_id", "")}


class SubscriberDescriber(SubscriberSpecification[OrbitMQBrokerConfig, SubscriberDescription]):
    """AsyncAPI description of a subscriber."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload = resolve_payloads(self.get_payloads())
        message = Message(title=f"{self.name}:Message", payload=payload)
        operation = Operation(message=message, bindings=None)
        return {
            self.name: SubscriberSpec(
                address=self.topic, description=self.description, operation=operation, bindings=None
            )
        }
