"""One name server as a broker sees it: what it knows, what it has yet to hear, and the task that tells it.

A link that fails tries again, at first soon and then less often, and says so once in the log. Nothing of it is felt
by the links to other name servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import DataVersion, KVTable
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.registration import Registration
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, RemotingClient

log = logging.getLogger("orbitmq.broker")

TOPICS_IN_ONE_REQUEST = 20_000
"""With the longest names they take 14 MB, so the request is never longer than the 16 MiB of a frame."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
"""Seconds until a name server that did not answer is asked again: twice as long each time, up to the second."""

PATIENCE = 3.0
"""How long a name server may take to hear of a change, or of the end, before others go on without it."""


class NameServerLink:
    """Keeps one name server informed, from when it is made until ``leave`` or ``drop``."""

    def __init__(self, address: str, registration: Registration, client: RemotingClient) -> None:
        self.address = address
        self.is_registered = False
        self.settled = asyncio.Event()
        """Nothing is left to tell, or there is nobody to tell it to."""
        self._registration = registration
        self._client = client
        self._wants_all = True
        self._asks_first = False
        self._topics: set[str] = set()
        self._wake = asyncio.Event()
        self._wake.set()
        self._connection: Connection | None = None
        self._trouble: str | None = ""
        """What is wrong; None if nothing is; empty before the first attempt."""
        self._is_leaving = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def want_all(self, *, ask_first: bool = False) -> None:
        self._asks_first = ask_first and (self._asks_first or not self._wants_all)
        self._wants_all = True
        self._woken()

    def want_topics(self, names: Iterable[str]) -> None:
        self._topics.update(names)
        if len(self._topics) > TOPICS_IN_ONE_REQUEST:
            # All of them go in parts.
            self._wants_all = True
            self._asks_first = False
        self._woken()

    def send_heartbeat(self) -> None:
        if self.is_registered and self._connection is not None and not self._connection.is_closing:
            with contextlib.suppress(RemotingError):
                self._connection.call_oneway(self._registration.heartbeat())

    def connection_closed(self, connection: Connection) -> None:
        """A name server whose connection is gone has forgotten the broker: it need not wait for the period."""
        if connection is self._connection and not self._is_leaving:
            self._connection = None
            self.is_registered = False
            self.want_all()

    def drop(self) -> None:
        self._is_leaving = True
        self._task.cancel()

    async def leave(self) -> None:
        """Let what is under way come to its end, so that it does not arrive after the goodbye; then say that."""
        self._is_leaving = True
        self._wake.set()
        patience = self._registration.patience
        await asyncio.wait([self._task], timeout=patience)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._connection is None:
            return
        try:
            async with asyncio.timeout(patience):
                await self._connection.call(self._registration.request_to_leave(), patience)
        except (RemotingError, TimeoutError) as error:
            log.warning("name server %s was not told that this broker stops: %s", self.address, error)

    def _woken(self) -> None:
        if self._trouble is None:
            self.settled.clear()
        self._wake.set()

    async def _run(self) -> None:
        pause = 0.0
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._is_leaving:
                return
            try:
                await self._tell()
            except (RemotingError, ProtocolError) as error:
                self._failed(str(error))
                pause = min(max(pause * 2, self._registration.first_pause), LONGEST_PAUSE)
                await self._pause(pause)
                self._wake.set()
                continue
            pause = 0.0
            if not self._wants_all and not self._topics:
                self.settled.set()

    async def _tell(self) -> None:
        """Say what is to be said, all of it if this name server may not know the broker."""
        connection = await self._client.connection(self.address)
        self._connection = connection
        if self._wants_all or not self.is_registered:
            asks_first = self._asks_first and self.is_registered
            # Before the requests are made: what changes while they are under way is told after them.
            self._wants_all = self._asks_first = False
            self._topics.clear()
            if not asks_first or await self._has_other_version(connection):
                for request in self._registration.request_for_all():
                    await self._register(connection, request)
        else:
            names, self._topics = self._topics, set()
            some = self._registration.request_for_topics(sorted(names))
            if some is not None:
                await self._register(connection, some)
        if not connection.is_closing:
            self._succeeded()

    async def _has_other_version(self, connection: Connection) -> bool:
        answer = await connection.call(self._registration.request_of_version(), self._registration.answer_seconds)
        if answer.code != ResponseCode.SUCCESS:
            return True
        if answer.ext_fields.get("changed", "true").lower() == "true" or answer.body is None:
            return True
        return DataVersion.decode(answer.body) != self._registration.version()

    async def _register(self, connection: Connection, request: Command) -> None:
        # A copy, because the connection writes its opaque into it and others send the same.
        answer = await connection.call(dataclasses.replace(request), self._registration.answer_seconds)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"it answered {answer.code}: {answer.remark or 'no reason given'}")
        if answer.body is not None:
            self._registration.take_order(KVTable.decode(answer.body))

    def _succeeded(self) -> None:
        self.is_registered = True
        if self._trouble is not None:
            self._trouble = None
            log.info("registered with name server %s", self.address)

    def _failed(self, trouble: str) -> None:
        # What it has of this broker is not known now, so next time it hears everything.
        self.is_registered = False
        self._wants_all = True
        self._asks_first = False
        self.settled.set()
        if not self._trouble:
            log.warning("not registered with name server %s: %s; it is tried again", self.address, trouble)
        self._trouble = trouble

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt; only the end comes sooner."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._is_leaving:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left)
