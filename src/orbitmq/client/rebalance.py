"""Which queues are a member's: asked of the brokers and worked out anew whenever something may have changed.

For push and lite pull consumers alike: what they do with the answer is theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from orbitmq.client.allocation import AllocateAveragely
from orbitmq.client.errors import BrokerError, OrbitMQError
from orbitmq.protocol.bodies import GetConsumerListByGroupResponseBody, MessageModel
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from orbitmq.client.allocation import Strategy
    from orbitmq.client.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue

log = logging.getLogger("orbitmq.client")

ROUND_SECONDS = 5.0
"""How long closing waits for a round that has begun."""


class Rebalancer:
    """Works out the share of one member of a group."""

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
        self._missing: set[str] = set()
        """Topics whose queues are not known, and that was said."""

    async def queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """All queues of a topic that can be read, sorted as all members sort them; None if that is not known."""
        try:
            route = await self._instance.route(topic)
        except (OrbitMQError, RemotingError) as error:
            # A retry topic comes into being with the first heartbeat, a moment after the group.
            if topic not in self._missing and not topic.startswith(RETRY_PREFIX):
                log.warning("the queues of %s cannot be shared out yet: %s", topic, error)
            self._missing.add(topic)
            return None
        self._missing.discard(topic)
        return sorted(route.subscribe_queues)

    async def share(self, topic: str) -> Sequence[MessageQueue] | None:
        """The queues of a topic that are this member's; None if nothing should change for now."""
        queues = await self.queues(topic)
        if queues is None or self._model is MessageModel.BROADCASTING:
            return queues
        if not queues:
            return []
        members = await self._members(topic)
        if members is None:
            return None
        try:
            return list(self._strategy.allocate(self._group, self._client_id, queues, members))
        except Exception as error:
            log.warning("the strategy %s failed and nothing changes: %s", self._strategy.name, error)
            return None

    async def _members(self, topic: str) -> list[str] | None:
        """The client ids of the group, sorted as all members sort them; None if that is not known."""
        members = await self._ask_members(topic)
        if members is None or self._client_id not in members:
            # The broker was started again, or is new here: it does not know this member yet, or any more.
            await self._instance.heartbeat_all()
            members = await self._ask_members(topic)
        # By UTF-16 units, which is how Java sorts texts.
        return None if members is None else sorted(members, key=lambda text: text.encode("utf-16-be", "replace"))

    async def _ask_members(self, topic: str) -> list[str] | None:
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
            log.debug("%s does not say who is in %s: %s", address, self._group, error)
            return None


class RebalanceRounds:
    """Rounds at intervals, and soon when asked for, but never too close together."""

    def __init__(self, round_: Callable[[], Awaitable[bool]], interval: float, min_interval: float) -> None:
        """``round_`` says whether everything is as it should be; if not, another follows after ``min_interval``."""
        self._round = round_
        self._interval = interval
        self._min_interval = min_interval
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._in_round = False

    def start(self, *, at_once: bool = True) -> None:
        if at_once:
            self._wanted.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="rebalance")

    def soon(self) -> None:
        self._wanted.set()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._is_closing = True
            if self._in_round:
                # Broken off in the middle it could leave a queue locked that nobody consumes.
                await asyncio.wait([task], timeout=ROUND_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wanted.wait()
            self._wanted.clear()
            self._in_round = True
            try:
                is_balanced = await self._round()
            except Exception:
                log.exception("a round of rebalancing failed, another one follows")
                is_balanced = False
            finally:
                self._in_round = False
            if self._is_closing:
                return
            if not is_balanced:
                self._wanted.set()
            await asyncio.sleep(self._min_interval)
