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
        cmd = self._command(message, topic, headers, correlation_id, options, None, PublishType.PUBLISH)
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
        cmd = self._command(message, topic, headers, correlation_id, options, timeout, PublishType.REQUEST)
        return await self._basic_request(cmd, producer=self._outer_config.producer)

    def _command(
        self,
        message: Any,
        topic: str,
        headers: dict[str, str] | None,
        correlation_id: str | None,
        options: dict[str, Any],
        timeout: float | None,
        kind: PublishType,
    ) -> OrbitMQPublishCommand:
        return OrbitMQPublishCommand(
            message,
            topic=topic or self.topic,
            headers={**self.headers, **(headers or {})},
            correlation_id=correlation_id or self._outer_config.id_generator(),
            options=MessageOptions(**options).merged(self.options),
            timeout=timeout,
            _publish_type=kind,
        )

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish what a handler returned."""
        made = OrbitMQPublishCommand.from_cmd(cmd)
        made.destination = made.destination or self.topic
        made.add_headers(self.headers, override=False)
        made.options = made.options.merged(self.options)
        await self._basic_publish(made, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)


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
