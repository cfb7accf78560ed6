"""The sink's connection to a cluster, one per process: routes, sends with retry, and look-ups of stored messages.

It serves all tasks that a process runs one after the other. Its loop runs in a thread, so that answers are read and
requests written to their end while a task waits for its next rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from orbitmq.client.config import ClientConfig, unique_instance_name
from orbitmq.client.consumer.received_message import pulled_messages
from orbitmq.client.errors import (
    BrokerError,
    NoNameServerError,
    NoRouteError,
    OffsetsLostError,
    OrbitMQError,
    SendError,
)
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.client.producer.config import ProducerConfig
from orbitmq.client.producer.send import Sender
from orbitmq.client.query.range_reader import QueueRange, RangeReader
from orbitmq.client.sync.bridge import SyncLoop
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import is_inner_batch
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.remoting import RemotingError
from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.sink.message_ids import MARK
from orbitmq.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from orbitmq.client.message import SendStatus
    from orbitmq.client.producer.message_encoder import EncodedMessage
    from orbitmq.client.producer.topic_publish_info import Target, TopicPublishInfo
    from orbitmq.protocol.message.record import Record

T = TypeVar("T")

log = logging.getLogger("orbitmq.spark")

UNKNOWN_TOPIC_RETRIES = 6
"""An unknown topic does not exist, or its brokers are starting: after this many retries, six seconds, it fails."""

MAX_CONNECTIONS = 8
"""Of one process to different clusters, or with different options. Others that no task uses are closed."""

_FIRST_PAUSE = 0.1
_MAX_PAUSE = 3.0
_FOREVER = str((1 << 63) - 1)
_UNIQUE_KEY = names.UNIQUE_KEY.encode()
_MARK = MARK.encode()
_DEFERRED_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Where a message waits that is to arrive later; it is found there until then."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A look-up: the last message of a request, which stands for all of them."""

    unique_key: str
    mark: str | None
    """What it is known by if its id is not a made one."""
    keys: Callable[[], list[bytes]]
    """The ids of all messages of the request."""
    is_delayed: bool

    def is_it(self, properties: bytes) -> bool:
        """True if a message with these properties is the last one."""
        return find(properties, _UNIQUE_KEY) == self.unique_key.encode() and (
            self.mark is None or find(properties, _MARK) == self.mark.encode()
        )


class SinkConnection:
    """A cluster for writing tasks, one per process and set of options; see ``connected``."""

    def __init__(self, options: SinkOptions) -> None:
        """Connects to nothing yet."""
        self._options = options
        self.users = 0
        """Tasks that use it now."""
        self._known: set[str] = set()
        """Topics of which a route was seen."""
        self._loop = SyncLoop.acquire()
        try:
            self._loop.do(self._open())
        except BaseException:
            self._loop.release()
            raise

    async def _open(self) -> None:
        options = self._options
        config = ClientConfig(name_servers=options.name_servers)
        producing = ProducerConfig(group=options.producer_group, max_message_size=options.max_message_size)
        self._instance = ClientInstance.acquire(config, config.client_id(unique_instance_name()))
        self._sender = Sender(self._instance, producing, (), None, _now_ms)
        self.group = options.producer_group
        self._instance.add_producer(self)

    def topics(self) -> Iterable[str]:
        """The topics whose routes are refreshed."""
        return self._sender.wire_topics()

    def close(self) -> None:
        """Leave the cluster."""
        try:
            self._loop.do(self._close())
        finally:
            self._loop.release()

    async def _close(self) -> None:
        await self._sender.close()
        await self._instance.remove_producer(self)
        await self._instance.release()

    # What a task calls, from its own thread

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic that can be written, in the order in which clients choose from them."""
        return self._loop.do(self._queues(topic))

    def submit(self, work: Coroutine[None, None, T]) -> concurrent.futures.Future[T]:
        """Begin something on the loop. What is submitted first begins first."""
        return self._loop.submit(work)

    # Routes

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        failures = 0
        while True:
            try:
                return (await self.publish_info(topic)).queues
            except (NoRouteError, NoNameServerError, SendError) as error:
                failures += 1
                await self.pause(error, failures, topic)

    async def publish_info(self, topic: str) -> TopicPublishInfo:
        """A topic to send to. Raises NoRouteError, NoNameServerError, SendError."""
        sender = self._sender
        found = sender.ready(topic) or await sender.find(topic, sender.time() + self._options.send_timeout)
        self._known.add(topic)
        return found

    async def pause(self, error: Exception, failures: int, topic: str, *, is_over: bool = False) -> None:
        """Wait before another attempt, or raise the error if there is none left."""
        most = self._options.retries
        if isinstance(error, NoRouteError) and topic not in self._known:
            most = min(most, UNKNOWN_TOPIC_RETRIES)
        if failures > most or is_over:
            raise error
        seconds = min(_FIRST_PAUSE * 2 ** (failures - 1), _MAX_PAUSE)
        log.warning(
            "sink: attempt %d to write to %s failed, will retry in %.1f s: %s", failures, topic, seconds, error
        )
        await asyncio.sleep(seconds)
        publish_info = self._sender.ready(topic)
        if publish_info is not None:
            await self._sender.refresh_soon(publish_info.wire_topic)

    # Sending and asking

    async def send(self, outgoing: EncodedMessage, publish_info: TopicPublishInfo, target: Target) -> SendStatus:
        """One attempt. Raises BrokerError, SendError."""
        began = self._sender.time()
        deadline = began + self._options.send_timeout
        return (await self._sender.send(outgoing, publish_info, target, began, deadline)).status

    async def is_written(self, topic: str, wanted: Wanted, is_over: Callable[[], bool]) -> bool:
        """True if a broker of the topic has the wanted chunk. Raises SparkSourceError if one cannot be queried.

        Retries until ``is_over`` returns true.
        """
        failures = 0
        while True:
            try:
                publish_info = await self.publish_info(topic)
                places = (publish_info.wire_topic, *(_DEFERRED_TOPICS if wanted.is_delayed else ()))
                queries = [
                    self._has(broker, address, place, wanted)
                    for broker, address in self._addresses(publish_info).items()
                    for place in places
                ]
                return any(await asyncio.gather(*queries))
            except (OrbitMQError, RemotingError) as error:
                failures += 1
                why = SparkSourceError(
                    f"cannot check what an earlier attempt wrote to {topic!r}: {error} "
                    "(idempotent=false writes without this check, perhaps twice)"
                )
                why.__cause__ = error
                cause = error if isinstance(error, NoRouteError | NoNameServerError) else why
                await self.pause(cause, failures, topic, is_over=is_over())

    def _addresses(self, publish_info: TopicPublishInfo) -> dict[str, str]:
        """One replica of each broker of a topic: the master, or another where there is none at present."""
        route = publish_info.route
        found = {broker: route.address(broker, only_this=False) for broker in route.addresses}
        return {broker: address for broker, address in found.items() if address is not None}

    async def _has(self, broker: str, address: str, topic: str, wanted: Wanted) -> bool:
        for record in await self._ask(address, topic, wanted):
            if await self._is_whole(broker, topic, record, wanted):
                return True
        return False

    async def _ask(self, address: str, topic: str, wanted: Wanted) -> list[Record]:
        """The matching records in a broker's index."""
        fields = {
            "topic": topic,
            "key": wanted.unique_key,
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": _FOREVER,
            "_UNIQUE_KEY_QUERY": "true",
        }
        try:
            answer = await self._instance.call(
                address, Command(RequestCode.QUERY_MESSAGE, ext_fields=fields), self._options.send_timeout
            )
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            raise
        # Keys are found by their hash, so that others may be among what is found.
        return [record for record in iter_records(answer.body or b"") if wanted.is_it(record.properties)]

    async def _is_whole(self, broker: str, topic: str, last: Record, wanted: Wanted) -> bool:
        """True if the messages before the last one of a batch are stored too. Reads them.

        A broker that lost its power may come back with holes where pages were not written.
        """
        keys = wanted.keys()
        if len(keys) < 2 or is_inner_batch(last.sys_flag):
            return True
        end = last.queue_offset + 1
        of = QueueRange(MessageQueue(topic, broker, last.queue_id), end - len(keys), end)
        if of.start < 0:
            return False
        found: list[bytes | None] = []
        try:
            async for chunk in RangeReader(self._instance, retry_seconds=self._options.send_timeout).chunks(of):
                found += [
                    find(message.stored_properties, _UNIQUE_KEY)
                    for message in pulled_messages(chunk.body, broker, topic, chunk.first)
                    if chunk.first <= message.offset < chunk.last
                ]
        except OffsetsLostError:
            return False
        except BrokerError as error:
            if error.code != ResponseCode.NO_PERMISSION:
                raise
            log.warning("sink: messages of %s cannot be read back, they count as written: %s", topic, error)
            return True
        return found == keys


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_guard = threading.Lock()
_connections: dict[tuple[int, SinkOptions], SinkConnection] = {}
"""Those of this process, and what a fork left of its parent's; the one used last is the last."""


@contextlib.contextmanager
def connected(options: SinkOptions) -> Iterator[SinkConnection]:
    """The connection of this process for these options, which stays open for the next task."""
    key = (os.getpid(), _connecting(options))
    with _guard:
        found = _connections.pop(key, None) or SinkConnection(key[1])
        _connections[key] = found
        found.users += 1
        idle = [other for other, connection in _connections.items() if other[0] == key[0] and not connection.users]
        ended = [_connections.pop(other) for other in idle[: max(0, len(_connections) - MAX_CONNECTIONS)]]
    try:
        for connection in ended:
            connection.close()
        yield found
    finally:
        with _guard:
            found.users -= 1


def close_connections() -> None:
    """Close what this process has opened for its tasks."""
    with _guard:
        mine = [key for key in _connections if key[0] == os.getpid()]
        opened = [_connections.pop(key) for key in mine]
    for connection in opened:
        connection.close()


def _connecting(options: SinkOptions) -> SinkOptions:
    """Only what makes a difference to a connection, so that different writes to one cluster share theirs."""
    return SinkOptions(
        name_servers=options.name_servers,
        producer_group=options.producer_group,
        send_timeout=options.send_timeout,
        retries=options.retries,
        max_message_size=options.max_message_size,
    )
