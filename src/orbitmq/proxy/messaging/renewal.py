"""Auto-renewal: the invisible time of messages that push consumers work on is prolonged until they are done."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.proxy.clients.settings import retry_delay
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.messages.popped import Handle
    from orbitmq.proxy.messaging.ack import AckCalls
    from orbitmq.proxy.messaging.runtime import Runtime

log = logging.getLogger("orbitmq.proxy")

STEPS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""Milliseconds of each renewal in turn; the last one repeats."""

PARALLEL = 64
"""Requests to brokers at the same time of one scan."""


@dataclasses.dataclass(slots=True)
class Renewed:
    """A message that is renewed. ``handle`` is the latest receipt."""

    topic: str
    group: str
    handle: Handle
    first_pop: int
    reconsume_times: int
    renewals: int = 0
    failures: int = 0
    busy: asyncio.Task[None] | None = None
    """The renewal that is in progress."""


class Renewals:
    """Messages that are renewed, by client and by the handle that the client was given."""

    def __init__(self, runtime: Runtime, acks: AckCalls) -> None:
        self._runtime = runtime
        self._config = runtime.config
        self._clock = runtime.clock
        self._acks = acks
        self._by_client: dict[Client, dict[str, Renewed]] = {}
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        runtime.clients.on_removed.append(self.clear)

    def __len__(self) -> int:
        return self._count

    def count_of(self, client: Client) -> int:
        return len(self._by_client.get(client, ()))

    def add(self, client: Client, given: str, renewed: Renewed) -> None:
        """Renew a message that was delivered to a client with this handle."""
        if client.is_closed:
            self._in_background(self._return(client, [renewed]))
            return
        if self._count >= self._config.grpc_max_renewed_messages:
            return
        messages = self._by_client.setdefault(client, {})
        self._count += given not in messages
        messages[given] = renewed

    async def take(self, client: Client, given: str) -> Handle | None:
        """Stop renewing a message and return its latest receipt; None if it is not renewed."""
        messages = self._by_client.get(client)
        renewed = None if messages is None else messages.get(given)
        if renewed is None:
            return None
        if renewed.busy is not None:
            await asyncio.wait([renewed.busy])
        self._remove(client, given)
        return renewed.handle

    def clear(self, client: Client) -> None:
        """Make the messages of a client that is gone visible again."""
        messages = self._by_client.pop(client, None)
        if messages:
            self._count -= len(messages)
            self._in_background(self._return(client, messages.values()))

    async def scan(self) -> None:
        """Renew what becomes visible soon."""
        until = self._clock.now_ms() + self._config.renew_ahead_time_millis
        due = [
            (client, given, renewed)
            for client, messages in self._by_client.items()
            for given, renewed in messages.items()
            if renewed.busy is None and renewed.handle.visible_ms <= until
        ]
        for start in range(0, len(due), PARALLEL):
            tasks = []
            for client, given, renewed in due[start : start + PARALLEL]:
                renewed.busy = asyncio.create_task(self._renew(client, given, renewed))
                tasks.append(renewed.busy)
            await asyncio.wait(tasks)

    async def stop(self) -> None:
        """Return the messages of all clients, which are about to be closed."""
        for client in tuple(self._by_client):
            self.clear(client)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _renew(self, client: Client, given: str, renewed: Renewed) -> None:
        config = self._config
        try:
            if self._clock.now_ms() - renewed.first_pop >= config.renew_max_time_millis:
                group = await self._runtime.backend.group(renewed.group)
                self._remove(client, given)
                await self._acks.change(
                    client,
                    renewed.topic,
                    renewed.group,
                    renewed.handle,
                    retry_delay(group, renewed.reconsume_times),
                )
                return
            step = STEPS[min(renewed.renewals, len(STEPS) - 1)]
            renewed.handle = await self._acks.change(client, renewed.topic, renewed.group, renewed.handle, step)
            renewed.renewals += 1
            renewed.failures = 0
        except StatusError as error:
            self._failed(client, given, renewed, error, is_final=error.code == pb.INVALID_RECEIPT_HANDLE)
        except RemotingError as error:
            self._failed(client, given, renewed, error, is_final=False)
        finally:
            renewed.busy = None

    def _failed(self, client: Client, given: str, renewed: Renewed, error: Exception, *, is_final: bool) -> None:
        renewed.failures += 1
        if is_final or renewed.failures >= self._config.max_renew_retry_times:
            log.warning("renewal: message of group %s not renewed any more: %s", renewed.group, error)
            self._remove(client, given)

    def _remove(self, client: Client, given: str) -> None:
        messages = self._by_client.get(client)
        if messages is not None and messages.pop(given, None) is not None:
            self._count -= 1
            if not messages:
                del self._by_client[client]

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _return(self, client: Client, messages: Iterable[Renewed]) -> None:
        for renewed in messages:
            if renewed.busy is not None:
                await asyncio.wait([renewed.busy])
            await self._acks.give_back(client, renewed.topic, renewed.group, renewed.handle)
