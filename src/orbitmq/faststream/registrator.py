"""Registration of subscribers and publishers, for brokers and routers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection

from orbitmq.faststream.config import (
    OrbitMQBrokerConfig,
    PublisherConfig,
    PublisherDescription,
    SubscriberConfig,
    SubscriberDescription,
    Subscription,
)
from orbitmq.faststream.message import Delivery
from orbitmq.faststream.publisher import OrbitMQPublisher, PublisherDescriber
from orbitmq.faststream.response import MessageOptions
from orbitmq.faststream.subscriber import OrbitMQSubscriber, SubscriberDescriber

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from fast_depends.dependencies import Dependant
    from faststream.middlewares import AckPolicy

MAX_WORKERS = 20


class OrbitMQRegistrator(Registrator[Delivery, OrbitMQBrokerConfig]):
    """Base of brokers and routers."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        group: str | None = None,
        tags: str | None = None,
        sql: str | None = None,
        orderly: bool = False,
        max_workers: int = MAX_WORKERS,
        start_from: str | float | datetime.datetime | None = None,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: Any = None,
        decoder: Any = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> OrbitMQSubscriber:
        """Subscribe a handler to a topic, with a filter by ``tags`` or ``sql``.

        Subscribers of one ``group`` (by default the broker's) share its messages, and have the same ``orderly``,
        ``max_workers`` and ``start_from``, which are options of ``orbitmq.aio.Consumer``.
        """
        outer = cast("OrbitMQBrokerConfig", self.config)
        options = {"orderly": orderly, "consume_thread_max": max_workers, "start_from": start_from}
        config = SubscriberConfig(
            subscription=Subscription(topic=topic, group=group, tags=tags, sql=sql, options=options),
            no_reply=no_reply,
            _outer_config=outer,
            _ack_policy=ack_policy,
        )
        about = SubscriberDescription(
            topic=topic, title_=title, description_=description, include_in_schema=include_in_schema
        )
        calls = CallsCollection[Any]()
        made = OrbitMQSubscriber(config, SubscriberDescriber(outer, about, calls), calls)
        super().subscriber(made, persistent=persistent)
        return made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=None,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        headers: dict[str, str] | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
        **options: Any,
    ) -> OrbitMQPublisher:
        """A publisher to a topic; ``options`` are defaults of its messages, such as ``tags``."""
        outer = cast("OrbitMQBrokerConfig", self.config)
        about = PublisherDescription(
            topic=topic,
            schema_=schema,
            title_=title,
            description_=description,
            include_in_schema=include_in_schema,
        )
        config = PublisherConfig(
            topic=topic, headers=headers or {}, options=MessageOptions(**options), _outer_config=outer
        )
        made = OrbitMQPublisher(config, PublisherDescriber(outer, about))
        super().publisher(made, persistent=persistent)
        return made
