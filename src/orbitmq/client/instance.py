"""What the producers and consumers of one client id share: connections, routes, heartbeats, and answers to brokers.

One for each event loop, list of name servers and client id; made by the first that needs it and closed by the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from threading import get_ident
from typing import TYPE_CHECKING, Any

from orbitmq.client import forks
from orbitmq.client.asked import requests_of_brokers
from orbitmq.client.errors import BrokerError, InvalidMessageError, NoNameServerError, NoRouteError, NotRunningError
from orbitmq.client.request_reply import PendingReplies
from orbitmq.client.routes import MASTER, Route
from orbitmq.protocol.bodies import HeartbeatData, ProducerData, TopicRouteData
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, CLIENT_INNER_PRODUCER_GROUP
from orbitmq.remoting import CallTimeoutError, RemotingClient, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from orbitmq.client.config import ClientConfig
    from orbitmq.client.ends import ConsumerEnd, ProducerEnd
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

FIRST_HEARTBEAT = 1.0
"""Seconds after the start; a producer or consumer that starts sends one at once as well."""

_instances: dict[tuple[asyncio.AbstractEventLoop, tuple[str, ...], str], ClientInstance] = {}


class ClientInstance:
    """The shared part of clients. Everything of it runs on the loop it was made on."""

    def __init__(self, config: ClientConfig, client_id: str) -> None:
        self.config = config
        self.client_id = client_id
        self.producers: dict[str, ProducerEnd] = {}
        self.consumers: dict[str, ConsumerEnd] = {}
        self.routes: dict[str, Route] = {}
        self.replies = PendingReplies()
        self.broker_versions: dict[str, int] = {}
        """By address, what brokers say in their answers to heartbeats."""
        self.client = RemotingClient(requests_of_brokers(self), tls=config.tls, on_open=self._opened)
        self._loop = asyncio.get_running_loop()
        self._forks = forks.count
        self._thread = get_ident()
        self._users = 0
        self._name_servers = list(config.name_servers)
        random.shuffle(self._name_servers)
        self._refreshing: dict[object, asyncio.Task[Route | None]] = {}
        """By topic, and by topic and the one that it is modelled on."""
        self._timers: list[asyncio.Task[None]] = []
        self._greeting: set[asyncio.Task[None]] = set()
        self._doubted: dict[Connection, asyncio.Task[None]] = {}
        self._is_closed = False
        self._unreached: set[str] = set()

    # Sharing

    @classmethod
    def acquire(cls, config: ClientConfig, client_id: str) -> ClientInstance:
        """The instance for this client id on this loop. ``release`` it when it is not needed any more."""
        key = (asyncio.get_running_loop(), config.name_servers, client_id)
        for other in [other for other in _instances if other[0].is_closed()]:
            # Nobody released it, and nobody can any more.
            del _instances[other]
        instance = _instances.get(key)
        if instance is None or instance._is_closed:
            instance = _instances[key] = cls(config, client_id)
            instance._start()
        instance._users += 1
        return instance

    async def release(self) -> None:
        """Close everything if nobody else uses it."""
        self._users -= 1
        if self._users > 0 or self._is_closed:
            return
        self._is_closed = True
        _instances.pop((self._loop, self.config.name_servers, self.client_id), None)
        going_on: list[asyncio.Task[Any]] = [*self._timers, *self._refreshing.values()]
        going_on += [*self._greeting, *self._doubted.values()]
        for task in going_on:
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)
        await self.client.close()

    def _start(self) -> None:
        config = self.config
        for pause, interval, job in (
            (config.poll_name_server_interval, config.poll_name_server_interval, self.refresh_all),
            (FIRST_HEARTBEAT, config.heartbeat_broker_interval, self.heartbeat_all),
        ):
            self._timers.append(self._loop.create_task(_repeat(pause, interval, job)))

    def check_usable(self) -> None:
        """Raise NotRunningError where connections would be shared with another process or loop."""
        if forks.count != self._forks:
            raise NotRunningError(
                "this client was made before a fork; make producers and consumers in the process that uses them"
            )
        if self._is_closed:
            raise NotRunningError("this client is closed")
        if get_ident() != self._thread or not self._loop.is_running():
            raise NotRunningError("this client belongs to another event loop, the one that it was made on")

    # Members

    def add_producer(self, producer: ProducerEnd) -> None:
        if producer.group in self.producers:
            raise InvalidMessageError(f"there is a producer of the group {producer.group!r} in this client already")
        self.producers[producer.group] = producer

    def add_consumer(self, consumer: ConsumerEnd) -> None:
        if consumer.group in self.consumers:
            raise InvalidMessageError(f"there is a consumer of the group {consumer.group!r} in this client already")
        self.consumers[consumer.group] = consumer

    async def remove_producer(self, producer: ProducerEnd) -> None:
        """Leave the group, and say so to the brokers."""
        if self.producers.get(producer.group) is producer:
            del self.producers[producer.group]
            await self._unregister({"clientID": self.client_id, "producerGroup": producer.group})

    async def remove_consumer(self, consumer: ConsumerEnd) -> None:
        """Leave the group, and say so to the brokers, who tell the other members."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self._unregister({"clientID": self.client_id, "consumerGroup": consumer.group})

    async def _unregister(self, fields: dict[str, str]) -> None:
        command = Command(RequestCode.UNREGISTER_CLIENT, ext_fields=fields, language=LanguageCode.PYTHON)
        await asyncio.gather(
            *(self._unregister_at(address, command) for address in self._known_addresses(masters_only=False))
        )

    async def _unregister_at(self, address: str, command: Command) -> None:
        # A broker that cannot be reached notices by itself that the connection is gone.
        with contextlib.suppress(RemotingError):
            fresh = Command(command.code, ext_fields=dict(command.ext_fields), language=command.language)
            await self.client.call(address, fresh, self.config.api_timeout)

    # Routes

    async def route(self, topic: str) -> Route:
        """The route of a topic, from the cache if it is there. Raises NoRouteError, NoNameServerError."""
        known = self.routes.get(topic)
        return await self.refresh(topic) if known is None or known.is_model else known

    async def refresh(self, topic: str) -> Route:
        """Ask a name server for the route now; those who ask at the same time share the answer."""
        self.check_usable()
        route = await self._shared(topic, self._look_up, topic)
        if route is None:
            raise NoRouteError(topic)
        return route

    async def _shared(
        self, key: object, look_up: Callable[..., Coroutine[None, None, Route | None]], *arguments: str | int
    ) -> Route | None:
        """What is being looked up under this key, or will be now: thousands of sends ask once."""
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
            # Those who waited have heard of it; if none did any more, nobody needs to.
            task.exception()

    async def route_to_publish(self, topic: str, default_topic: str, default_queues: int) -> Route:
        """The route for sending: for a topic that does not exist yet, that of the topic it will be modelled on."""
        route = self.routes.get(topic)
        if route is not None and route.publish_queues:
            return route
        with contextlib.suppress(NoRouteError):
            route = await self.refresh(topic)
            if route.publish_queues:
                return route
        made = await self._shared((topic, default_topic), self._look_up_model, topic, default_topic, default_queues)
        assert made is not None
        return made

    async def _look_up_model(self, topic: str, default_topic: str, default_queues: int) -> Route:
        answer = await self.ask_name_server(_route_request(default_topic or AUTO_CREATE_TOPIC))
        if answer.code != ResponseCode.SUCCESS or answer.body is None:
            # That there is no such topic as the model is no news to whoever asked for another one.
            told = "" if answer.code == ResponseCode.TOPIC_NOT_EXIST else answer.remark or ""
            raise NoRouteError(topic, told.partition("\n")[0])
        route = Route.of(topic, _route_data(topic, answer.body), most_queues=default_queues)
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
        if known is not None and not known.is_model and known.says_the_same(data):
            return known
        route = self.routes[topic] = Route.of(topic, data)
        for consumer in self.consumers.values():
            if known is not None and topic in consumer.topics():
                consumer.rebalance_soon()
        return route

    async def refresh_all(self) -> None:
        """Bring the routes of all topics in use up to date. What cannot be asked now stays as it is."""
        topics = set[str]()
        for end in (*self.producers.values(), *self.consumers.values()):
            topics.update(end.topics())
        for topic in topics:
            try:
                await self.refresh(topic)
            except (NoRouteError, NoNameServerError, BrokerError) as error:
                log.warning("the route of %s could not be refreshed: %s", topic, error)

    async def ask_name_server(self, command: Command) -> Command:
        """The answer of the first name server that answers. Raises NoNameServerError."""
        self.check_usable()
        complaint = ""
        for _ in range(len(self._name_servers)):
            address = self._name_servers[0]
            try:
                fresh = Command(command.code, ext_fields=dict(command.ext_fields), language=LanguageCode.PYTHON)
                return await self._call_at_once(await self.client.connection(address), fresh)
            except RemotingError as error:
                complaint = str(error)
                # The next one, for everybody, until that one fails too.
                if self._name_servers[0] == address:
                    self._name_servers.append(self._name_servers.pop(0))
        raise NoNameServerError(
            f"no name server answers ({complaint}): is one running at {';'.join(self.config.name_servers)}?"
        )

    def address(
        self, topic: str, broker_name: str, broker_id: int = MASTER, *, only_this: bool = True
    ) -> str | None:
        """Where a broker of a topic is, as far as cached routes say; of another topic's if this one's do not."""
        route = self.routes.get(topic)
        found = None if route is None else route.address(broker_name, broker_id, only_this=only_this)
        if found is not None:
            return found
        for other in tuple(self.routes.values()):
            found = other.address(broker_name, broker_id, only_this=only_this)
            if found is not None:
                return found
        return None

    def send_address(self, address: str) -> str:
        """Where to send for a broker at this address: its VIP port, if that is wanted."""
        if not self.config.vip_channel_enabled:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    def any_address(self, topic: str) -> str | None:
        """Some broker of a topic, its master if it has one."""
        route = self.routes.get(topic)
        if route is None or not route.addresses:
            return None
        replicas = random.choice([replicas for replicas in route.addresses.values() if replicas] or [{}])
        return replicas.get(MASTER) or next(iter(replicas.values()), None)

    # Calls

    async def connection(self, address: str) -> Connection:
        """The shared connection to an address. Raises RemotingError."""
        self.check_usable()
        return await self.client.connection(address)

    async def call(self, address: str, command: Command, seconds: float | None = None) -> Command:
        """The successful answer of a broker. Raises BrokerError for any other, and RemotingError."""
        self.check_usable()
        command.language = LanguageCode.PYTHON
        connection = await self.client.connection(address)
        try:
            answer = await connection.call(command, self.config.api_timeout if seconds is None else seconds)
        except CallTimeoutError:
            self.doubt(connection)
            raise
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return answer

    async def _call_at_once(self, connection: Connection, command: Command) -> Command:
        """The answer to what is answered at once by whoever is there. A connection without one is closed."""
        try:
            return await connection.call(command, self.config.api_timeout)
        except CallTimeoutError as error:
            connection.abort(error)
            raise

    def doubt(self, connection: Connection) -> None:
        """An answer of a broker did not come in time. Was it slow, or does nothing come through any more?

        A connection can be dead without a word, as when a router forgets it, and then all calls over it would wait
        for nothing for a quarter of an hour, until the system gives it up. A heartbeat tells.
        """
        if connection.is_closing or connection in self._doubted or self._is_closed:
            return
        body = self._heartbeat().encode()
        task = self._loop.create_task(self._ask_doubted(connection, body))
        self._doubted[connection] = task
        task.add_done_callback(lambda _: self._doubted.pop(connection, None))

    async def _ask_doubted(self, connection: Connection, body: bytes) -> None:
        try:
            await self._heartbeat_over(connection, connection.remote_address, body)
        except RemotingError as error:
            log.warning("%s is silent, a new connection is made: %s", connection.remote_address, error)

    # Heartbeats

    async def heartbeat_all(self) -> None:
        """Tell all brokers that are known who is here. One that cannot be told now is told the next time."""
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
            await self._heartbeat_over(await self.client.connection(address), address, body)
        except RemotingError as error:
            # Once for each time that it comes to this: consumers ask again and again.
            if address not in self._unreached:
                log.warning("no heartbeat to %s: %s", address, error)
            self._unreached.add(address)
        else:
            self._unreached.discard(address)

    async def _heartbeat_over(self, connection: Connection, address: str, body: bytes) -> None:
        command = Command(RequestCode.HEART_BEAT, body=body, language=LanguageCode.PYTHON)
        answer = await self._call_at_once(connection, command)
        if answer.code == ResponseCode.SUCCESS:
            self.broker_versions[address] = answer.version
        else:
            log.warning("%s refused a heartbeat with code %d: %s", address, answer.code, answer.remark)

    def _opened(self, connection: Connection) -> None:
        """A broker that was restarted knows nobody: it is told at once who is here, not at the next heartbeat."""
        known = self._known_addresses(masters_only=not self.consumers)
        if (self.producers or self.consumers) and connection.remote_address in known:
            task = self._loop.create_task(self._greet(connection))
            self._greeting.add(task)
            task.add_done_callback(self._greeting.discard)

    async def _greet(self, connection: Connection) -> None:
        try:
            await self._heartbeat_over(connection, connection.remote_address, self._heartbeat().encode())
        except RemotingError as error:
            log.warning("no heartbeat to %s: %s", connection.remote_address, error)
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
        raise NoRouteError(topic, f"the name server's answer cannot be read: {error}") from error


async def _repeat(pause: float, interval: float, job: Callable[[], Coroutine[None, None, None]]) -> None:
    await asyncio.sleep(pause)
    while True:
        try:
            await job()
        except Exception:
            # What is done every half minute must not end with a fault of one time.
            log.exception("%s failed and will be tried again", getattr(job, "__name__", job))
        await asyncio.sleep(interval)
