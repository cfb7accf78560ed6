"""Client instance (RocketMQ: MQClientInstance): connections, routes and heartbeats that clients of one id share.

One for each event loop, list of name servers and client id. The first user creates it, the last one closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

from orbitmq.client.credentials import signer_of
from orbitmq.client.errors import BrokerError, InvalidMessageError, NoNameServerError, NoRouteError, NotRunningError
from orbitmq.client.instance import fork_guard
from orbitmq.client.instance.broker_requests import broker_request_handlers
from orbitmq.client.instance.master_watch import MasterWatch
from orbitmq.client.instance.routes import MASTER, Route
from orbitmq.client.instance.unreachable import UnreachableBrokers
from orbitmq.client.producer.request_reply import PendingReplies
from orbitmq.protocol.bodies import HeartbeatData, ProducerData, TopicRouteData
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, CLIENT_INNER_PRODUCER_GROUP
from orbitmq.remoting import CallTimeoutError, ConnectError, ConnectionLostError, RemotingClient, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from orbitmq.client.config import ClientConfig
    from orbitmq.client.credentials import Credentials
    from orbitmq.client.instance.registrants import RegisteredConsumer, RegisteredProducer
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

FIRST_HEARTBEAT = 1.0
"""Seconds after the start. A producer or consumer that starts sends one at once as well."""

_Key: TypeAlias = "tuple[asyncio.AbstractEventLoop, tuple[str, ...], str, Credentials | None]"
_instances: dict[_Key, ClientInstance] = {}


def forget_closed_loops() -> None:
    """Forget the instances of closed event loops: their users can no longer release them."""
    for key in [key for key in _instances if key[0].is_closed()]:
        del _instances[key]


class ClientInstance:
    """State that the clients of one client id share. It belongs to the event loop that created it."""

    def __init__(self, config: ClientConfig, client_id: str) -> None:
        self.config = config
        self.clock = config.clock
        self.random = config.random
        self.client_id = client_id
        self.producers: dict[str, RegisteredProducer] = {}
        self.consumers: dict[str, RegisteredConsumer] = {}
        self.routes: dict[str, Route] = {}
        self.replies = PendingReplies(config.clock)
        self.broker_versions: dict[str, int] = {}
        """Protocol versions by address, from heartbeat responses."""
        self._signer = signer_of(config.credentials)
        self.client = RemotingClient(
            broker_request_handlers(self),
            tls=config.tls,
            on_open=self._opened,
            on_close=self._lost,
            signer=self._signer,
        )
        self._loop = asyncio.get_running_loop()
        self._forks = fork_guard.count
        self._thread = get_ident()
        self._users = 0
        self._name_servers = list(config.name_servers)
        self.random.shuffle(self._name_servers)
        self._refreshing: dict[object, asyncio.Task[Route | None]] = {}
        """Route look-ups in flight, by topic, and by topic and model topic."""
        self._timers: list[asyncio.Task[None]] = []
        self._first_heartbeats: set[asyncio.Task[None]] = set()
        self._probes: dict[Connection, asyncio.Task[None]] = {}
        self._masters = MasterWatch(self)
        self._is_closed = False
        self.unreachable = UnreachableBrokers(config.clock.monotonic)
        self._missed_heartbeats: set[str] = set()
        self.on_lost: list[Callable[[Connection], None]] = []
        """Called with every connection that was closed, for whatever reason."""

    # Sharing

    @classmethod
    def acquire(cls, config: ClientConfig, client_id: str) -> ClientInstance:
        """The instance for this client id on this loop. Callers ``release`` it."""
        key = (asyncio.get_running_loop(), config.name_servers, client_id, config.credentials)
        forget_closed_loops()
        instance = _instances.get(key)
        if instance is None or instance._is_closed:
            instance = _instances[key] = cls(config, client_id)
            instance._start()
        instance._users += 1
        return instance

    async def release(self) -> None:
        """Close the instance after its last user."""
        self._users -= 1
        if self._users > 0 or self._is_closed:
            return
        self._is_closed = True
        _instances.pop((self._loop, self.config.name_servers, self.client_id, self.config.credentials), None)
        pending: list[asyncio.Task[Any]] = [*self._timers, *self._refreshing.values()]
        pending += [*self._first_heartbeats, *self._probes.values()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await self._masters.close()
        await self.client.close()

    def _start(self) -> None:
        config = self.config
        for pause, interval, job in (
            (config.poll_name_server_interval, config.poll_name_server_interval, self.refresh_all),
            (FIRST_HEARTBEAT, config.heartbeat_broker_interval, self.heartbeat_all),
        ):
            self._timers.append(self._loop.create_task(_repeat(pause, interval, job)))

    def check_usable(self) -> None:
        """Raise NotRunningError in a forked process, on another loop, or after closing."""
        if fork_guard.count != self._forks:
            raise NotRunningError(
                "this client was created before a fork: create clients in the process that uses them"
            )
        if self._is_closed:
            raise NotRunningError("this client is closed")
        if get_ident() != self._thread or not self._loop.is_running():
            raise NotRunningError("this client belongs to another event loop, the one that it was started on")

    # Members

    def add_producer(self, producer: RegisteredProducer) -> None:
        if producer.group in self.producers:
            raise InvalidMessageError(f"this client already has a producer of the group {producer.group!r}")
        self.producers[producer.group] = producer

    def add_consumer(self, consumer: RegisteredConsumer) -> None:
        if consumer.group in self.consumers:
            raise InvalidMessageError(f"this client already has a consumer of the group {consumer.group!r}")
        self.consumers[consumer.group] = consumer

    async def remove_producer(self, producer: RegisteredProducer) -> None:
        """Leave the group and unregister at the brokers."""
        if self.producers.get(producer.group) is producer:
            del self.producers[producer.group]
            await self._unregister({"clientID": self.client_id, "producerGroup": producer.group})

    async def remove_consumer(self, consumer: RegisteredConsumer) -> None:
        """Leave the group and unregister at the brokers, which notify the other members."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self._unregister({"clientID": self.client_id, "consumerGroup": consumer.group})

    async def _unregister(self, fields: dict[str, str]) -> None:
        command = Command(RequestCode.UNREGISTER_CLIENT, ext_fields=fields, language=LanguageCode.PYTHON)
        await asyncio.gather(
            *(self._unregister_at(address, command) for address in self._known_addresses(masters_only=False))
        )

    async def _unregister_at(self, address: str, command: Command) -> None:
        # An unreachable broker detects the closed connection itself.
        with contextlib.suppress(RemotingError):
            fresh = Command(command.code, ext_fields=dict(command.ext_fields), language=command.language)
            await self.client.call(address, fresh, self.config.api_timeout)

    # Routes

    async def route(self, topic: str) -> Route:
        """The route of a topic, from the cache if possible. Raises NoRouteError, NoNameServerError."""
        known = self.routes.get(topic)
        return await self.refresh(topic) if known is None or known.is_model else known

    async def refresh(self, topic: str) -> Route:
        """Fetch the route from a name server now. Concurrent callers share one request."""
        self.check_usable()
        route = await self._shared(topic, self._look_up, topic)
        if route is None:
            known = self.routes.get(topic)
            if known is None or known.is_model:
                raise NoRouteError(topic)
            brokers = ", ".join(sorted(known.addresses))
            why = f"its brokers ({brokers}) are not registered any more, or the topic was deleted"
            raise NoRouteError(topic, why, exists=True)
        return route

    async def _shared(
        self, key: object, look_up: Callable[..., Coroutine[None, None, Route | None]], *arguments: str | int
    ) -> Route | None:
        """Join the look-up in flight under this key, or start one: thousands of sends share one request."""
        task = self._refreshing.get(key)
        if task is None:
            task = self._refreshing[key] = self._loop.create_task(look_up(*arguments))
            task.add_done_callback(lambda ended: self._looked_up(key, ended))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if self._is_closed and (waiting is None or not waiting.cancelling()):
                raise NotRunningError("this client was closed") from None
            raise

    def _looked_up(self, key: object, task: asyncio.Task[Route | None]) -> None:
        del self._refreshing[key]
        if not task.cancelled():
            # Marks the exception as retrieved: all waiters may have been cancelled.
            task.exception()

    async def route_to_publish(self, topic: str, default_topic: str, default_queues: int) -> Route:
        """The route for sending. A topic that does not exist yet gets the route of the default topic."""
        route = self.routes.get(topic)
        if route is not None and route.publish_queues:
            return route
        try:
            route = await self.refresh(topic)
            if route.publish_queues:
                return route
            missing = NoRouteError(topic, route.why_not_writable, exists=True)
        except NoRouteError as error:
            missing = error
        try:
            made = await self._shared(
                (topic, default_topic), self._look_up_model, topic, default_topic, default_queues
            )
        except NoRouteError:
            if missing.exists:
                # Brokers that are gone for a moment lack the default topic as well: that is not the reason.
                raise missing from None
            raise
        assert made is not None
        return made

    async def _look_up_model(self, topic: str, default_topic: str, default_queues: int) -> Route:
        answer = await self.ask_name_server(_route_request(default_topic or AUTO_CREATE_TOPIC))
        if answer.code != ResponseCode.SUCCESS or answer.body is None:
            # The caller did not name the default topic, so its absence is not the reason to report.
            reason = "" if answer.code == ResponseCode.TOPIC_NOT_EXIST else answer.remark or ""
            raise NoRouteError(topic, reason.partition("\n")[0])
        route = Route.of(topic, _route_data(topic, answer.body), max_queues=default_queues)
        if not route.publish_queues:
            raise NoRouteError(topic)
        self.routes[topic] = route
        return route

    async def _look_up(self, topic: str) -> Route | None:
        answer = await self.ask_name_server(_route_request(topic))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS or answer.body is None:
            raise BrokerError(answer.code, answer.remark, "the name server")
        data = _route_data(topic, answer.body)
        known = self.routes.get(topic)
        if known is not None and not known.is_model and known.has_data(data):
            return known
        route = self.routes[topic] = Route.of(topic, data)
        for consumer in self.consumers.values():
            if known is not None and topic in consumer.topics():
                consumer.rebalance_soon()
        return route

    async def refresh_all(self) -> None:
        """Refresh the routes of all topics in use. A failed look-up keeps the old route."""
        topics = set[str]()
        for client in (*self.producers.values(), *self.consumers.values()):
            topics.update(client.topics())
        for topic in topics:
            try:
                await self.refresh(topic)
            except (NoRouteError, NoNameServerError, BrokerError) as error:
                log.warning("route: refresh of %s failed: %s", topic, error)

    async def ask_name_server(self, command: Command) -> Command:
        """The response of the first name server that responds. Raises NoNameServerError."""
        self.check_usable()
        last_error, hint = "", ""
        for _ in range(len(self._name_servers)):
            address = self._name_servers[0]
            try:
                fresh = Command(command.code, ext_fields=dict(command.ext_fields), language=LanguageCode.PYTHON)
                return await self._call_or_abort(await self.client.connection(address), fresh)
            except RemotingError as error:
                last_error = str(error)
                hint = ""
                if isinstance(error, ConnectionLostError) and self.config.tls is None:
                    hint = ", and does it require TLS, for which tls= or ORBITMQ_TLS_CA is needed"
                # All calls use the next name server until it fails too.
                if self._name_servers[0] == address:
                    self._name_servers.append(self._name_servers.pop(0))
        raise NoNameServerError(
            f"no name server responds ({last_error}): is one running at {';'.join(self.config.name_servers)}{hint}?"
        )

    def address(
        self, topic: str, broker_name: str, broker_id: int = MASTER, *, only_this: bool = True
    ) -> str | None:
        """Address of a broker from the cached routes, of this topic first.

        Without ``only_this`` it is that of another replica if there is no such broker, or if it is unreachable.
        """
        route = self.routes.get(topic)
        found = None if route is None else self._address_in(route, broker_name, broker_id, only_this)
        if found is not None:
            return found
        for other in tuple(self.routes.values()):
            found = self._address_in(other, broker_name, broker_id, only_this)
            if found is not None:
                return found
        return None

    def _address_in(self, route: Route, broker_name: str, broker_id: int, only_this: bool) -> str | None:
        found = route.address(broker_name, broker_id, only_this=only_this)
        if only_this or found not in self.unreachable:
            return found
        return self._reachable(route.addresses[broker_name]) or found

    def _reachable(self, replicas: Mapping[int, str]) -> str | None:
        """The replica with the smallest id that is not known to be unreachable."""
        known = (replicas[broker_id] for broker_id in sorted(replicas))
        return next((address for address in known if address not in self.unreachable), None)

    def send_address(self, address: str) -> str:
        """The address to send to: the broker's VIP port with ``vip_channel_enabled``."""
        if not self.config.vip_channel_enabled:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    def any_address(self, topic: str) -> str | None:
        """Address of a random broker of a topic, its master if it has one that is reachable."""
        route = self.routes.get(topic)
        if route is None or not route.addresses:
            return None
        replicas = self.random.choice([replicas for replicas in route.addresses.values() if replicas] or [{}])
        return self._reachable(replicas) or next(iter(replicas.values()), None)

    # Calls

    async def connection(self, address: str) -> Connection:
        """The shared connection to an address. Raises RemotingError."""
        self.check_usable()
        try:
            connection = await self.client.connection(address)
        except ConnectError:
            self.unreachable.failed(address)
            raise
        self.unreachable.connected(address)
        return connection

    async def call(self, address: str, command: Command, seconds: float | None = None) -> Command:
        """The successful response of a broker. Raises BrokerError for any other code, and RemotingError."""
        command.language = LanguageCode.PYTHON
        connection = await self.connection(address)
        try:
            answer = await connection.call(command, self.config.api_timeout if seconds is None else seconds)
        except CallTimeoutError:
            self.doubt(connection)
            raise
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    def signed(self, request: bytes) -> bytes:
        """An encoded request with the signature of the client's user, for sends without a response."""
        return request if self._signer is None else self._signer.sign_frames(request)

    async def _call_or_abort(self, connection: Connection, command: Command) -> Command:
        """Call for requests that every live server responds to at once. A timeout closes the connection."""
        try:
            return await connection.call(command, self.config.api_timeout)
        except CallTimeoutError as error:
            connection.abort(error)
            raise

    def doubt(self, connection: Connection) -> None:
        """Probe a connection after a response timed out: a heartbeat tells a slow broker from a dead connection.

        A connection can die silently, for example when a router drops it. Without the probe, all calls over it time
        out for a quarter of an hour, until the operating system gives it up. Meanwhile another broker may become
        the master: it is looked for until there is a response.
        """
        if not self._is_closed:
            self._masters.begin(connection.remote_address)
        if connection.is_closing or connection in self._probes or self._is_closed:
            return
        body = self._heartbeat().encode()
        task = self._loop.create_task(self._probe(connection, body))
        self._probes[connection] = task
        task.add_done_callback(lambda _: self._probes.pop(connection, None))

    async def _probe(self, connection: Connection, body: bytes) -> None:
        try:
            await self._heartbeat_over(connection, connection.remote_address, body)
            self._masters.end(connection.remote_address)
        except RemotingError as error:
            log.warning(
                "connection: no heartbeat response from %s, reconnecting: %s", connection.remote_address, error
            )

    # Heartbeats

    async def heartbeat_all(self) -> None:
        """Send a heartbeat to all known brokers. Failures are logged; the next round retries."""
        if not self.producers and not self.consumers:
            return
        addresses = self._known_addresses(masters_only=not self.consumers)
        body = self._heartbeat().encode()
        await asyncio.gather(*(self._heartbeat_to(address, body) for address in addresses))

    def _heartbeat(self) -> HeartbeatData:
        producers = {*self.producers, CLIENT_INNER_PRODUCER_GROUP}
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group) for group in sorted(producers)],
            consumer_data_set=[consumer.heartbeat() for consumer in self.consumers.values()],
        )

    async def _heartbeat_to(self, address: str, body: bytes) -> None:
        try:
            await self._heartbeat_over(await self.connection(address), address, body)
        except RemotingError as error:
            # Logged once per outage: consumers send heartbeats often.
            if address not in self._missed_heartbeats:
                log.warning("heartbeat: %s is unreachable: %s", address, error)
            self._missed_heartbeats.add(address)
        else:
            self._missed_heartbeats.discard(address)

    async def _heartbeat_over(self, connection: Connection, address: str, body: bytes) -> None:
        command = Command(RequestCode.HEART_BEAT, body=body, language=LanguageCode.PYTHON)
        answer = await self._call_or_abort(connection, command)
        if answer.code == ResponseCode.SUCCESS:
            self.broker_versions[address] = answer.version
        else:
            log.warning("heartbeat: %s refused it with code %d: %s", address, answer.code, answer.remark)

    def _opened(self, connection: Connection) -> None:
        """Send a heartbeat over a new connection at once: a restarted broker has no client state."""
        known = self._known_addresses(masters_only=not self.consumers)
        if (self.producers or self.consumers) and connection.remote_address in known:
            task = self._loop.create_task(self._heartbeat_and_rebalance(connection))
            self._first_heartbeats.add(task)
            task.add_done_callback(self._first_heartbeats.discard)

    def _lost(self, connection: Connection, _: Exception | None) -> None:
        for listener in tuple(self.on_lost):
            listener(connection)

    async def _heartbeat_and_rebalance(self, connection: Connection) -> None:
        try:
            await self._heartbeat_over(connection, connection.remote_address, self._heartbeat().encode())
        except RemotingError as error:
            log.warning("heartbeat: %s is unreachable: %s", connection.remote_address, error)
            return
        for consumer in self.consumers.values():
            consumer.rebalance_soon()

    def _known_addresses(self, *, masters_only: bool) -> Iterable[str]:
        found: dict[str, None] = {}
        for route in self.routes.values():
            for replicas in route.addresses.values():
                for broker_id, address in replicas.items():
                    if broker_id == MASTER or not masters_only:
                        found[address] = None
        return list(found)


def _route_request(topic: str) -> Command:
    return Command(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic, "acceptStandardJsonOnly": "true"}
    )


def _route_data(topic: str, body: bytes) -> TopicRouteData:
    try:
        return TopicRouteData.decode(body)
    except ProtocolError as error:
        raise NoRouteError(topic, f"malformed route from the name server: {error}") from error


async def _repeat(pause: float, interval: float, job: Callable[[], Coroutine[None, None, None]]) -> None:
    await asyncio.sleep(pause)
    while True:
        try:
            await job()
        except Exception:
            # One failure must not end a periodic job.
            log.exception("client: %s failed, will retry", getattr(job, "__name__", job))
        await asyncio.sleep(interval)
