"""Publish commands: a body, its topic, and what RocketMQ knows besides."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand, Response

from orbitmq.client.message import Message
from orbitmq.faststream.message import CONTENT_TYPE, CORRELATION_ID

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from orbitmq.client.message import ReceivedMessage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """Options of a message, as in ``orbitmq.Message``."""

    tags: str | None = None
    keys: str | Sequence[str] = ()
    sharding_key: str | None = None
    delay: float | datetime.timedelta | None = None
    deliver_at: datetime.datetime | float | None = None
    priority: int | None = None

    def merged(self, defaults: MessageOptions) -> MessageOptions:
        """These options, with ``defaults`` in the place of those that are not set."""
        values = {
            field.name: getattr(self, field.name) or getattr(defaults, field.name)
            for field in dataclasses.fields(self)
        }
        return MessageOptions(**values)


class OrbitMQPublishCommand(PublishCommand):
    """One send, request or reply."""

    def __init__(
        self,
        message: Any,
        *,
        topic: str = "",
        correlation_id: str | None = None,
        headers: dict[str, str] | None = None,
        options: MessageOptions | None = None,
        timeout: float | None = None,
        _publish_type: PublishType = PublishType.PUBLISH,
    ) -> None:
        super().__init__(
            body=message,
            destination=topic,
            correlation_id=correlation_id,
            headers=headers,
            _publish_type=_publish_type,
        )
        self.options = MessageOptions() if options is None else options
        self.timeout = timeout
        self.request: ReceivedMessage | None = None
        """The request that this replies to."""

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> OrbitMQPublishCommand:
        """This command, or one for a value that a handler returned."""
        if isinstance(cmd, OrbitMQPublishCommand):
            return cmd
        return cls(
            cmd.body,
            topic=cmd.destination,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
            _publish_type=cmd.publish_type,
        )

    def message(self, body: bytes, content_type: str | None) -> Message:
        """The message to send. RocketMQ has no empty properties: those are left out."""
        properties = {name: str(value) for name, value in (self.headers or {}).items() if str(value)}
        if content_type:
            properties[CONTENT_TYPE] = content_type
        if self.correlation_id:
            properties[CORRELATION_ID] = self.correlation_id
        options = {
            field.name: value
            for field in dataclasses.fields(self.options)
            if (value := getattr(self.options, field.name)) not in (None, ())
        }
        return Message(self.destination, body, properties=properties, **options)


class OrbitMQResponse(Response):
    """Return value of a handler with options of the message that is published."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        **options: Any,
    ) -> None:
        """``options`` are those of ``orbitmq.Message``: tags, keys, sharding_key, delay, deliver_at, priority."""
        super().__init__(body=body, headers=headers, correlation_id=correlation_id)
        self.options = MessageOptions(**options)

    def as_publish_command(self) -> OrbitMQPublishCommand:
        return OrbitMQPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            options=self.options,
        )
