"""Rebalance: computes the queues of a member, from the group's members on the brokers and the topic's route.

For push and lite pull consumers, which apply the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from orbitmq.client.consumer.allocate_strategy import AllocateAveragely
from orbitmq.client.errors import BrokerError, OrbitMQError
from orbitmq.protocol.bodies import GetConsumerListByGroupResponseBody, MessageModel
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orbitmq.client.consumer.allocate_strategy import Strategy
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue

log = logging.getLogger("orbitmq.client")

ROUND_SECONDS = 5.0
"""How long closing waits for a round in progress."""


class Rebalancer:
    """Computes the share of one member of a group."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        client_id: str,
        strategy: Strategy | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        self._instance = instance
        self._group = group
        self._client_id = client_id
        self._strategy = strategy or AllocateAveragely()
        self._model = model
        self.members: list[str] = []
        """Client ids of the group, as known from the last round."""
        self._missing: set[str] = set()
        """Topics without a known route, already logged."""

    async def queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """All readable queues of a topic, in the order of all members; None without a route."""
        try:
            route = await self._instance.route(topic)
        except (OrbitMQError, RemotingError) as error:
            # A broker creates the retry topic with the group's first heartbeat.
            if topic not in self._missing and not topic.startswith(RETRY_PREFIX):
                log.warning("rebalance: no route of %s yet: %s", topic, error)
            self._missing.add(topic)
            return None
        self._missing.discard(topic)
        return sorted(route.subscribe_queues)

    async def share(self, topic: str) -> Sequence[MessageQueue] | None:
        """This member's queues of a topic; None if the assignment should stay as it is."""
        queues = await self.queues(topic)
        if queues is None or self._model is MessageModel.BROADCASTING:
            return queues
        if not queues:
            return []
        members = await self._members(topic)
        if members is None:
            return None
        self.members = members
        try:
            return list(self._strategy.allocate(self._group, self._client_id, queues, members))
        except Exception as error:
            log.warning("rebalance: strategy %s failed, keeping the queues: %s", self._strategy.name, error)
            return None

    async def _members(self, topic: str) -> list[str] | None:
        """Client ids of the group, in the order of all members; None if unknown."""
        members = await self._fetch_members(topic)
        if members is None or self._client_id not in members:
            # A restarted or new broker does not know this member yet.
            await self._instance.heartbeat_all()
            members = await self._fetch_members(topic)
        # By UTF-16 units, as Java sorts strings.
        return None if members is None else sorted(members, key=lambda text: text.encode("utf-16-be", "replace"))

    async def _fetch_members(self, topic: str) -> list[str] | None:
        address = self._instance.any_address(topic)
        if address is None:
            return None
        command = Command(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            ext_fields={"consumerGroup": self._group},
            language=LanguageCode.PYTHON,
        )
        try:
            answer = await self._instance.call(address, command)
            return GetConsumerListByGroupResponseBody.decode(answer.body or b"{}").consumer_id_list
        except (BrokerError, RemotingError, ProtocolError) as error:
            log.debug("rebalance: %s returned no members of %s: %s", address, self._group, error)
            return None


class RebalanceLoop:
    """Runs rebalance rounds: periodically and on demand, with a minimum interval."""

    def __init__(self, round_: Callable[[], Awaitable[bool]], interval: float, min_interval: float) -> None:
        """``round_`` returns whether the result is complete; if not, it is retried after ``min_interval``."""
        self._round = round_
        self._interval = interval
        self._min_interval = min_interval
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._in_round = False

    def start(self, *, at_once: bool = True) -> None:
        if at_once:
            self._requested.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="rebalance")

    def soon(self) -> None:
        self._requested.set()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._is_closing = True
            if self._in_round:
                # A cancelled round could leave a queue locked that no member consumes.
                await asyncio.wait([task], timeout=ROUND_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._requested.wait()
            self._requested.clear()
            self._in_round = True
            try:
                is_balanced = await self._round()
            except Exception:
                log.exception("rebalance: round failed, will retry")
                is_balanced = False
            finally:
                self._in_round = False
            if self._is_closing:
                return
            if not is_balanced:
                self._requested.set()
            await asyncio.sleep(self._min_interval)
