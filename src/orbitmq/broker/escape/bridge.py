"""Escape bridge: messages that come due on a slave that acts as master go to another master of the cluster.

The slave's log has the bytes of its master's and takes no others. So what its delay levels and its timer deliver is
put into this outbox and sent as an ordinary message. The outbox counts as part of the log: progress is persisted
once ``drained`` says that all of it was stored by another master, so a crash repeats messages and loses none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.delivery_loop import RepeatedWarning
from orbitmq.broker.quarantine import is_transient
from orbitmq.protocol.bodies import TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import PERM_WRITE
from orbitmq.protocol.message.pop_receipt import normal_topic
from orbitmq.protocol.message.properties import find, without
from orbitmq.protocol.names import RETRY_PREFIX, REVIVE_TOPIC_PREFIX
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.store import AppendRefusedError, PutStatus, StoreError
from orbitmq.store.append.appender import Appended
from orbitmq.store.append.bulk_appender import Bulk, Share

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orbitmq.broker.escape.revive import EscapeRevive
    from orbitmq.broker.escape.transactions import EscapeTransactions
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner
    from orbitmq.store import StoreConfig, StoredMessage

log = logging.getLogger("orbitmq.broker")

MASTER_ID = 0
MAX_MESSAGES = 1000
MAX_BYTES = 16 * 1024 * 1024
"""Of the outbox. Beyond that delivery waits, as for a store that refuses appends."""

IN_FLIGHT = 32
SEND_SECONDS = 3.0
RETRY_SECONDS = 1.0
REFUSED_SECONDS = 600.0
"""Time in which all other masters refuse a message, before it is skipped: an operator may permit the topic."""

ROUTE_SECONDS = 5.0
"""Age of a cached route."""
MAX_ROUTES = 1000

_STORED = frozenset(
    {
        int(ResponseCode.SUCCESS),
        int(ResponseCode.FLUSH_DISK_TIMEOUT),
        int(ResponseCode.FLUSH_SLAVE_TIMEOUT),
        int(ResponseCode.SLAVE_NOT_AVAILABLE),
    }
)
_TEMPORARY = frozenset(
    {int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.SERVICE_NOT_AVAILABLE)}
)
"""Refusals that say nothing of the message."""
_DEFERRALS = tuple(
    name.encode()
    for name in (
        *(names.DELAY_LEVEL, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS),
        *(names.REAL_TOPIC, names.REAL_QUEUE_ID),
    )
)
"""Properties that would defer the message once more where it arrives."""
_ORIGIN_GROUP = names.ORIGIN_GROUP.encode()
_RETRY_TOPIC = names.RETRY_TOPIC.encode()
_UNIQUE_ID = names.UNIQUE_KEY.encode()


@dataclasses.dataclass(frozen=True, slots=True)
class _Target:
    """A master with writable queues of a topic."""

    name: str
    address: str
    queues: int


class EscapeBridge:
    """The outbox of an acting slave. ``append`` and ``append_many`` take the place of the store's."""

    def __init__(self, runtime: BrokerRuntime, ask: Callable[[Command], Awaitable[Command | None]]) -> None:
        self._runtime = runtime
        self._ask = ask
        self._outbox: deque[StoredMessage] = deque()
        self._bytes = 0
        self._sending = 0
        self._refused: dict[int, float] = {}
        """By ``id`` of a message in flight, when all other masters first refused it."""
        self._routes: dict[str, tuple[float, list[_Target]]] = {}
        self._wanted = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._warning = RepeatedWarning()
        self._client: RemotingClient | None = None
        self.signer: RequestSigner | None = None
        self.tls: ClientTls | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = False
        self._dropped = 0
        self.revive: EscapeRevive | None = None
        """Where check points and acknowledgements of POP go; None without POP."""
        self.transactions: EscapeTransactions | None = None
        """Puts half messages in."""
        self.escaped = 0
        """Messages that other masters have stored."""

    @property
    def config(self) -> StoreConfig:
        """The limits of messages are those of the store."""
        return self._runtime.store.config

    def start(self) -> None:
        self._client = RemotingClient(tls=self.tls, signer=self.signer)
        self._tasks = [asyncio.get_running_loop().create_task(self._run()) for _ in range(IN_FLIGHT)]

    async def stop(self) -> None:
        """Stop sending. What was not sent is delivered again later."""
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sending = 0
        self._settle()
        if self._client is not None:
            await self._client.close()

    def open(self) -> None:
        """Accept messages."""
        self._is_open = True

    def close(self) -> None:
        """Accept no more, and drop what no master has taken: its progress was not persisted."""
        self._is_open = False
        self._dropped += len(self._outbox) + self._sending
        if self.revive is not None:
            self._dropped += self.revive.waiting
            self.revive.drop()
        if self.transactions is not None:
            self.transactions.drop()
        self._outbox.clear()
        self._wanted.set()
        self._settle()

    # For the services

    def append(self, message: StoredMessage, *, is_stored: bool = False) -> Appended:  # noqa: ARG002  # as the store
        """Put a message into the outbox. Raises AppendRefusedError if that is full."""
        if self._is_open and self.revive is not None and message.topic.startswith(REVIVE_TOPIC_PREFIX):
            return Appended(-1, self.revive.take(message), -1, self._runtime.clock.now_ms())
        size = len(message.body) + len(message.properties)
        if not self._is_open or len(self._outbox) + self._sending >= MAX_MESSAGES or self._bytes + size > MAX_BYTES:
            raise AppendRefusedError(
                PutStatus.SERVICE_NOT_AVAILABLE, "messages of this acting slave wait for another master"
            )
        self._outbox.append(message)
        self._bytes += size
        self._empty.clear()
        self._wanted.set()
        return Appended(-1, size, -1, self._runtime.clock.now_ms())

    def append_many(self, messages: Sequence[StoredMessage]) -> Bulk:
        """Put the first of these messages into the outbox, as many as there is room for."""
        shares: list[Share] = []
        for message in messages:
            try:
                appended = self.append(message)
            except AppendRefusedError:
                if not shares:
                    raise
                break
            shares.append(Share(message.topic, message.queue_id, 1, appended.size))
        return Bulk(len(shares), shares)

    async def drained(self) -> None:
        """Wait until all that was put in is stored by other masters, or decided about. Raises StoreError."""
        count = self._dropped
        if self.revive is not None:
            await self.revive.settled()
        await self._sent(count)

    async def sent(self) -> None:
        """Wait until the outbox was empty. Raises StoreError."""
        await self._sent(self._dropped)

    async def _sent(self, count: int) -> None:
        await self._empty.wait()
        if self._dropped != count:
            raise StoreError("messages of this acting slave were left to its master")

    # Sending

    async def _run(self) -> None:
        while True:
            if not self._outbox:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            message = self._outbox.popleft()
            self._sending += 1
            while not await self._has_sent(message) and self._is_open:  # noqa: ASYNC110  # a retry, not a condition
                await asyncio.sleep(RETRY_SECONDS)
            self._refused.pop(id(message), None)
            self._sending -= 1
            self._settle()

    def _settle(self) -> None:
        if not self._outbox and not self._sending:
            self._bytes = 0
            self._empty.set()

    async def _has_sent(self, message: StoredMessage) -> bool:
        """Send a message to one of the masters; False if it has to be retried."""
        problem = f"no other master has queues of topic {message.topic}"
        codes = set()
        try:
            for target in await self._targets_of(message):
                answer = await self._send(message, target)
                if answer.code in _STORED:
                    self.escaped += 1
                    self._warning.clear()
                    return True
                problem = f"broker {target.name} refused it with code {answer.code}: {answer.remark}"
                codes.add(answer.code)
                if answer.code == ResponseCode.MESSAGE_ILLEGAL:
                    break
            if self._is_hopeless(message, codes):
                self._runtime.stats.quarantine.skip("escape", _described(message), problem)
                return True
        except (RemotingError, ProtocolError) as error:
            problem = str(error)
            self._routes.pop(message.topic, None)
        except Exception as error:
            problem = str(error)
            # A message that can never be sent must not keep the ones behind it.
            sender = getattr(asyncio.current_task(), "get_name", str)()
            if not is_transient(error) and self._runtime.stats.quarantine.failed(
                "escape", sender, id(message), _described(message), error
            ):
                return True
        self._warning.log(
            f"escape: a message of topic {message.topic} was not sent, will retry: {problem}",
            RemotingError(problem),
        )
        return False

    def _is_hopeless(self, message: StoredMessage, codes: set[int]) -> bool:
        """True if other masters answered with these codes, and none of them will ever take the message."""
        if ResponseCode.MESSAGE_ILLEGAL in codes:
            return True
        if not codes or codes & _TEMPORARY:
            self._refused.pop(id(message), None)
            return False
        now = asyncio.get_running_loop().time()
        return now - self._refused.setdefault(id(message), now) >= REFUSED_SECONDS

    async def _targets_of(self, message: StoredMessage) -> list[_Target]:
        """The masters for a message; for a retry topic that none of them has yet those that have its topic."""
        targets = await self._targets(message.topic)
        if targets or not message.topic.startswith(RETRY_PREFIX):
            return targets
        group = find(message.properties, _ORIGIN_GROUP)
        origin = decode_utf8(find(message.properties, _RETRY_TOPIC) or b"")
        if group is not None:
            origin = normal_topic(message.topic, decode_utf8(group))
        # A new retry topic has one queue.
        return [dataclasses.replace(target, queues=1) for target in await self._targets(origin)] if origin else []

    async def _targets(self, topic: str) -> list[_Target]:
        """Other masters of the cluster with the topic, in random order."""
        now = asyncio.get_running_loop().time()
        known = self._routes.get(topic)
        if known is None or now - known[0] > ROUTE_SECONDS:
            fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
            answer = await self._ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields))
            found: list[_Target] = []
            if answer is not None and answer.code == ResponseCode.SUCCESS and answer.body is not None:
                found = self._masters(TopicRouteData.decode(answer.body))
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            known = self._routes[topic] = now, found
        return self._runtime.random.sample(known[1], len(known[1]))

    def _masters(self, route: TopicRouteData) -> list[_Target]:
        config = self._runtime.config
        # Never its own name: the route may still have the dead master.
        addresses = {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in route.broker_datas
            if MASTER_ID in broker.broker_addrs
            and broker.cluster == config.broker_cluster_name
            and broker.broker_name != config.broker_name
        }
        return [
            _Target(queues.broker_name, addresses[queues.broker_name], queues.write_queue_nums)
            for queues in route.queue_datas
            if queues.broker_name in addresses and queues.perm & PERM_WRITE and queues.write_queue_nums > 0
        ]

    async def _send(self, message: StoredMessage, target: _Target) -> Command:
        assert self._client is not None, "not started"
        config = self._runtime.config
        fields = {
            "a": f"InnerProducerGroup_{config.broker_name}_{config.broker_id}",
            "b": message.topic,
            "c": message.topic,
            "d": str(target.queues),
            "e": str(self._runtime.random.randrange(target.queues)),
            "f": str(message.sys_flag),
            "g": str(message.born_timestamp),
            "h": str(message.flag),
            "i": decode_utf8(without(message.properties, _DEFERRALS)),
            "j": str(message.reconsume_times),
            "k": "false",
            "m": "false",
            "n": target.name,
        }
        command = Command(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=bytes(message.body))
        return await self._client.call(target.address, command, SEND_SECONDS)


def _described(message: StoredMessage) -> str:
    """A message in a log line: by its id, or by the time of its producer."""
    unique_id = decode_utf8(find(message.properties, _UNIQUE_ID) or b"")
    return f"message {unique_id or f'of {message.born_timestamp}'} of topic {message.topic}"
