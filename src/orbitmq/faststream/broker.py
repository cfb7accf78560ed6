"""Broker of FastStream: a connection to a cluster, with its producer and consumers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from orbitmq.client.config import name_server_list
from orbitmq.client.producer.producer import Producer
from orbitmq.client.push.consumer import Consumer
from orbitmq.faststream.config import OrbitMQBrokerConfig
from orbitmq.faststream.consumers import BrokerConsumers
from orbitmq.faststream.message import Delivery
from orbitmq.faststream.producer import BrokerProducer
from orbitmq.faststream.registrator import OrbitMQRegistrator
from orbitmq.faststream.response import MessageOptions, OrbitMQPublishCommand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from fast_depends.dependencies import Dependant
    from faststream.middlewares import AckPolicy

    from orbitmq.client.message import Receipt

DEFAULT_GROUP = "faststream"


class OrbitMQRouter(OrbitMQRegistrator, BrokerRouter[Delivery, OrbitMQBrokerConfig]):
    """Subscribers and publishers, to include in a broker. ``prefix`` goes before their topics."""

    def __init__(self, prefix: str = "", *, routers: Iterable[OrbitMQRegistrator] = (), **options: Any) -> None:
        """``options`` are those of FastStream's ``BrokerConfig``."""
        super().__init__(handlers=(), config=OrbitMQBrokerConfig(prefix=prefix, **options), routers=routers)


class OrbitMQBroker(OrbitMQRegistrator, BrokerUsecase[Delivery, Producer, OrbitMQBrokerConfig]):
    """FastStream's broker on a cluster of OrbitMQ or Apache RocketMQ::

    broker = OrbitMQBroker("127.0.0.1:9876", group="billing")
    app = FastStream(broker)

    @broker.subscriber("orders", tags="paid")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice: ...
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        client_options: Mapping[str, Any] | None = None,
        producer_options: Mapping[str, Any] | None = None,
        middlewares: Sequence[Any] = (),
        dependencies: Sequence[Dependant] = (),
        routers: Iterable[OrbitMQRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = 15.0,
        parser: Any = None,
        decoder: Any = None,
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
    ) -> None:
        """``client_options`` are for producer and consumers: ``namespace``, ``tls``, ``access_key`` and more."""
        addresses = name_server_list(name_servers)
        shared = dict(client_options or {})

        def consumer(*, group: str, **options: Any) -> Consumer:
            patience = {} if graceful_timeout is None else {"await_termination_when_shutdown": graceful_timeout}
            return Consumer(addresses, group=group, **{**shared, **patience, **options})

        def producer() -> Producer:
            return Producer(addresses, **{**shared, **dict(producer_options or {})})

        self._make_producer = producer
        super().__init__(
            routers=routers,
            config=OrbitMQBrokerConfig(
                producer=BrokerProducer(parser, decoder),
                consumers=BrokerConsumers(consumer),
                group=group,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_dependencies=dependencies,
                logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=_LoggerStorage),
                fd_config=FastDependsConfig(
                    use_fastdepends=True, provider=dependency_provider, context=ContextRepo()
                ),
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=None,
                url=list(addresses),
                protocol="rocketmq",
                protocol_version=None,
                tags=(),
                security=None,
            ),
        )

    @property
    def _own(self) -> OrbitMQBrokerConfig:
        config = self.config.broker_config
        assert isinstance(config, OrbitMQBrokerConfig)
        return config

    async def _connect(self) -> Producer:
        producer = await self._make_producer().start()
        self._own.producer.connect(producer, self._own.fd_config._serializer, self._own.broker_codec)
        return producer

    async def start(self) -> None:
        """Connect, and start the consumers of all subscribers."""
        await self.connect()
        await super().start()
        if self._own.consumers is not None:
            await self._own.consumers.start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Wait for running handlers, leave the groups, disconnect."""
        if self._own.consumers is not None:
            await self._own.consumers.close()
        await super().stop(exc_type, exc_val, exc_tb)
        producer, self._connection = self._connection, None
        if isinstance(producer, Producer):
            await producer.close()
        self._own.producer.disconnect()

    async def ping(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """True if the producer and all consumers are connected."""
        consumers = () if self._own.consumers is None else self._own.consumers.all
        if self._connection is None or not all(one.is_connected for one in consumers):
            return False
        return await self._connection.ping(timeout=timeout)

    async def publish(
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        **options: Any,
    ) -> Receipt:
        """Send a message; options are those of ``orbitmq.Message``: tags, keys, delay and more."""
        cmd = OrbitMQPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            options=MessageOptions(**options),
        )
        receipt: Receipt = await self._basic_publish(cmd, producer=self._own.producer)
        return receipt

    async def request(  # type: ignore[override]
        self,
        message: Any = None,
        topic: str = "",
        *,
        headers: dict[str, str] | None = None,
        correlation_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - of the reply
        **options: Any,
    ) -> Any:
        """Send a request and wait for the reply of its handler."""
        cmd = OrbitMQPublishCommand(
            message,
            topic=topic,
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            options=MessageOptions(**options),
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        return await self._basic_request(cmd, producer=self._own.producer)


class _LoggerStorage(DefaultLoggerStorage):
    """Log lines with topic and group."""

    def get_logger(self, *, context: ContextRepo) -> Any:
        logger: Any = self._get_logger_ref()
        if logger is None:
            logger = get_broker_logger(
                name="orbitmq",
                default_context={"topic": "", "group": ""},
                message_id_ln=10,
                fmt="%(asctime)s %(levelname)-8s - %(topic)s | %(group)s | %(message_id)-10s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger

    logger_log_level = logging.INFO

    def set_level(self, level: int) -> None:
        self.logger_log_level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """The columns have no fixed width."""
