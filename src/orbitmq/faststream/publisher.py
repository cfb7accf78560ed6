"""Publisher: a topic with default headers and options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream.response.publish_type import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from orbitmq.faststream.config import OrbitMQBrokerConfig, PublisherConfig, PublisherDescription
from orbitmq.faststream.response import MessageOptions, OrbitMQPublishCommand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faststream._internal.types import PublisherMiddleware
    from faststream.response.response import PublishCommand


class OrbitMQPublisher(PublisherUsecase):
    """Publishes to one topic; as a decorator, what a handler returns."""

    _outer_config: OrbitMQBrokerConfig

    def __init__(self, config: PublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self.headers = config.headers
        self.options = config.options

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: Any,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        **options: Any,
    ) -> Any:
        """Send a message; options are those of ``orbitmq.Message``. Returns the receipt."""
        cmd = OrbitMQPublishCommand(message, topic=topic, headers=headers, options=MessageOptions(**options))
        self._complete(cmd, correlation_id)
        return await self._basic_publish(cmd, producer=self._outer_config.producer, _extra_middlewares=())

    async def request(
        self,
        message: Any,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of the reply
        **options: Any,
    ) -> Any:
        """Send a request and wait for its reply."""
        cmd = OrbitMQPublishCommand(
            message,
            topic=topic,
            headers=headers,
            options=MessageOptions(**options),
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        self._complete(cmd, correlation_id)
        return await self._basic_request(cmd, producer=self._outer_config.producer)

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish what a handler returned."""
        made = OrbitMQPublishCommand.from_cmd(cmd)
        self._complete(made, made.correlation_id)
        await self._basic_publish(made, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    def _complete(self, cmd: OrbitMQPublishCommand, correlation_id: str | None) -> None:
        """Set what the command leaves to this publisher."""
        cmd.destination = cmd.destination or self.topic
        cmd.correlation_id = correlation_id or self._outer_config.id_generator()
        cmd.add_headers(self.headers, override=False)
        cmd.options = cmd.options.merged(self.options)


class PublisherDescriber(PublisherSpecification[OrbitMQBrokerConfig, PublisherDescription]):
    """AsyncAPI description of a publisher."""

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = Operation(message=Message(title=f"{self.name}:Message", payload=payload), bindings=None)
        description = self.config.description_
        return {
            self.name: PublisherSpec(
                address=self.topic, description=description, operation=operation, bindings=None
            )
        }
