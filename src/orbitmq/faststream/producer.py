"""Producer of a broker: encodes bodies, sends, requests and replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState

from orbitmq.client.producer.request_reply import create_reply
from orbitmq.faststream.message import CONTENT_TYPE, CORRELATION_ID, Delivery, decode, parse_message
from orbitmq.faststream.response import OrbitMQPublishCommand

if TYPE_CHECKING:
    from faststream.response.response import PublishCommand

    from orbitmq.client.message import Message, Receipt, ReceivedMessage
    from orbitmq.client.producer.producer import Producer

REQUEST_SECONDS = 3.0


class BrokerProducer(ProducerProto[OrbitMQPublishCommand]):
    """Sends the commands of one broker."""

    def __init__(self, parser: Any = None, decoder: Any = None) -> None:
        self._parser = ParserComposition(parser, parse_message)
        self._decoder = ParserComposition(decoder, decode)
        self._producer: Producer | None = None
        self.serializer: Any = None
        self.codec: Any = DefaultCodec()

    def connect(self, producer: Producer, serializer: Any, codec: Any = None) -> None:
        self._producer = producer
        self.serializer = serializer
        self.codec = DefaultCodec() if codec is None else codec

    def disconnect(self) -> None:
        self._producer = None

    @property
    def _connected(self) -> Producer:
        if self._producer is None:
            raise IncorrectState("the broker is not connected: start it, or await broker.connect()")
        return self._producer

    async def encoded(self, cmd: OrbitMQPublishCommand) -> Message:
        """The message of a command."""
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        if cmd.request is None:
            return cmd.message(body, content_type)
        reply = create_reply(cmd.request, body)
        for name, value in ((CONTENT_TYPE, content_type), (CORRELATION_ID, cmd.correlation_id)):
            if value:
                reply.properties[name] = value
        return reply

    async def publish(self, cmd: OrbitMQPublishCommand) -> Receipt:
        return await self._connected.send(await self.encoded(cmd))

    async def request(self, cmd: OrbitMQPublishCommand) -> Delivery:
        seconds = REQUEST_SECONDS if cmd.timeout is None else cmd.timeout
        return Delivery(await self._connected.request(await self.encoded(cmd), timeout=seconds))

    async def publish_batch(self, cmd: OrbitMQPublishCommand) -> Any:  # noqa: ARG002
        raise FeatureNotSupportedException(
            "publish messages one by one: the producer option auto_batch makes batches"
        )


class ReplyPublisher(FakePublisher):
    """Publishes the return value of a handler as the reply to its request."""

    def __init__(self, producer: ProducerProto[Any], request: ReceivedMessage) -> None:
        super().__init__(producer=producer)
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> OrbitMQPublishCommand:
        reply = OrbitMQPublishCommand.from_cmd(super().patch_command(cmd))
        reply.request = self._request
        return reply
