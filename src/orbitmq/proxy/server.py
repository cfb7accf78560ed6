"""gRPC server: listens, and composes the calls of MessagingService over a backend."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.proxy.auth_hook import anonymous
from orbitmq.proxy.clients.registration import Registration
from orbitmq.proxy.clients.table import ClientTable
from orbitmq.proxy.clients.telemetry import Telemetry
from orbitmq.proxy.http2.server import Http2Config, Http2Server, Method
from orbitmq.proxy.messaging.ack import AckCalls
from orbitmq.proxy.messaging.clients import ClientCalls
from orbitmq.proxy.messaging.lite import LiteCalls
from orbitmq.proxy.messaging.offsets import OffsetCalls
from orbitmq.proxy.messaging.receive import ReceiveCalls
from orbitmq.proxy.messaging.renewal import Renewals
from orbitmq.proxy.messaging.routes import RouteCalls
from orbitmq.proxy.messaging.runtime import Runtime
from orbitmq.proxy.messaging.send import SendCalls
from orbitmq.proxy.messaging.transaction import Transactions
from orbitmq.proxy.service import MessagingService
from orbitmq.remoting import ServerTls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from orbitmq.platform.clock import Clock
    from orbitmq.proxy.auth_hook import Authenticate
    from orbitmq.proxy.backend.base import Backend
    from orbitmq.proxy.config import GrpcConfig
    from orbitmq.remoting import Handler

    MakeBackend = Callable[[Mapping[int, Handler]], Backend]

log = logging.getLogger("orbitmq.proxy")

EXPIRY_SECONDS = 5.0
"""Interval of the removal of silent clients and old transactions."""

CLOSING_SECONDS = 0.5
"""Time for calls in progress when the server stops and the settings give none."""


class GrpcServer:
    """One port, and everything behind it."""

    def __init__(
        self,
        config: GrpcConfig,
        make_backend: MakeBackend,
        *,
        host: str = "127.0.0.1",
        clock: Clock = SYSTEM_CLOCK,
        random_source: random.Random | None = None,
        authenticate: Authenticate = anonymous,
        tls: ServerTls | None = None,
    ) -> None:
        """``make_backend`` gets the table of handlers for requests that brokers send to clients; it is
        complete when the server starts."""
        self.config = config
        self._host = host
        self._tls = tls or _tls_of(config)
        self._server: Http2Server | None = None
        self._timers: list[asyncio.Task[None]] = []
        self.port = 0
        handlers: dict[int, Handler] = {}
        self.backend = make_backend(handlers)
        self.clients = ClientTable(config, clock, self.backend)
        runtime = Runtime(config, clock, random_source or random.Random(), self.backend, self.clients)
        self.transactions = Transactions(config, clock)
        registration = Registration(config, clock, self.backend)
        telemetry = Telemetry(runtime, registration, self.transactions)
        handlers.update(telemetry.handlers)
        acks = AckCalls(runtime)
        self.renewals = acks.renewals = Renewals(runtime, acks)
        self._receives = ReceiveCalls(runtime, acks, self.renewals)
        self._lites = LiteCalls(runtime)
        routes, offsets = RouteCalls(runtime, lambda: self.port), OffsetCalls(runtime)
        sends, client_calls = SendCalls(runtime, self.transactions), ClientCalls(runtime, registration)
        self.methods: dict[str, Method] = {}
        """Calls of other services on the same port, by path. Those of MessagingService are added at the start."""
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        self._service = MessagingService(
            self.clients,
            {
                "QueryRoute": routes.query_route,
                "QueryAssignment": routes.query_assignment,
                "Heartbeat": client_calls.heartbeat,
                "NotifyClientTermination": client_calls.notify_client_termination,
                "SendMessage": sends.send_message,
                "RecallMessage": sends.recall_message,
                "EndTransaction": self.transactions.end,
                "AckMessage": acks.ack_message,
                "ChangeInvisibleDuration": acks.change_invisible_duration,
                "ForwardMessageToDeadLetterQueue": acks.forward_to_dead_letter_queue,
                "UpdateOffset": offsets.update_offset,
                "GetOffset": offsets.get_offset,
                "QueryOffset": offsets.query_offset,
                "SyncLiteSubscription": self._lites.sync_lite_subscription,
            },
            {"ReceiveMessage": self._receives.receive_message, "PullMessage": offsets.pull_message},
            telemetry,
            authenticate,
        )

    async def start(self) -> None:
        """Listen. Raises ListenError and TlsConfigError."""
        config = self.config
        limits = Http2Config(
            max_message_bytes=config.grpc_max_inbound_message_size,
            max_streams=config.grpc_max_concurrent_calls_per_connection,
            max_calls=config.grpc_max_calls,
            idle_seconds=config.grpc_client_idle_time_mills / 1000,
        )
        server = Http2Server({**self.methods, **self._service.methods}, limits, tls=self._tls)
        await self.backend.start()
        await server.start(self._host, config.grpc_server_port)
        self._server, self.port = server, server.port
        self._timers = [
            asyncio.create_task(_every(EXPIRY_SECONDS, self._expire)),
            asyncio.create_task(_every(config.renew_schedule_period_millis / 1000, self.renewals.scan)),
        ]
        log.info("proxy: listening for gRPC on %s:%d", self._host, self.port)

    def counts(self) -> tuple[int, int, int]:
        """Connections, producers and consumers."""
        consumers = sum(client.is_consumer for client in self.clients)
        producers = sum(client.settings is not None for client in self.clients) - consumers
        return 0 if self._server is None else len(self._server.connections), producers, consumers

    async def stop(self, grace: float | None = None) -> None:
        """Refuse calls, cancel those in progress after ``grace`` seconds, and make undelivered messages visible."""
        server, self._server = self._server, None
        if server is None:
            return
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        await server.stop(CLOSING_SECONDS if grace is None else grace)
        await self.renewals.stop()
        await self._receives.stop()
        for client in self.clients:
            self.clients.remove(client)
        await self._lites.stop()
        await self.backend.stop()
        for close in self.on_stop:
            await close()

    async def _expire(self) -> None:
        self.clients.expire()
        self.transactions.expire()


def _tls_of(config: GrpcConfig) -> ServerTls | None:
    if not config.tls_cert_path:
        return None
    return ServerTls(
        certificate_path=config.tls_cert_path, key_path=config.tls_key_path, key_password=config.tls_key_password
    )


async def _every(seconds: float, job: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await job()
        except Exception:
            # A failed periodic task must not stop the schedule; it is retried at the next interval.
            log.exception("proxy: periodic task %s failed, will retry in %g s", job.__qualname__, seconds)
