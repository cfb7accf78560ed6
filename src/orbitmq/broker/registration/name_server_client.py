"""Client of one name server: tracks what it knows of this broker and sends it registrations and changes.

A failed request is retried with exponential backoff, and the failure is logged once. Name servers do not affect
each other.
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

    from orbitmq.broker.registration.registrar import Registration
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, RemotingClient

log = logging.getLogger("orbitmq.broker")

TOPICS_IN_ONE_REQUEST = 20_000
"""With the longest names they take 14 MB, so a request stays below the frame limit of 16 MiB."""

FIRST_PAUSE = 0.5
MAX_BACKOFF = 8.0
"""Backoff in seconds for a name server that does not respond: doubled each time, up to MAX_BACKOFF."""

PATIENCE = 3.0
"""Seconds to wait for a name server to receive a change, or the unregistration, before going on without it."""


class NameServerClient:
    """Keeps one name server informed, from construction until ``leave`` or ``drop``."""

    def __init__(self, address: str, registration: Registration, client: RemotingClient) -> None:
        self.address = address
        self.is_registered = False
        self.settled = asyncio.Event()
        """Set when there is nothing left to send, or the name server is unreachable."""
        self._registration = registration
        self._client = client
        self._wants_all = True
        self._asks_first = False
        self._topics: set[str] = set()
        self._wake = asyncio.Event()
        self._wake.set()
        self._connection: Connection | None = None
        self._trouble: str | None = ""
        """Current failure; None if there is none; empty before the first attempt."""
        self._is_leaving = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def want_all(self, *, ask_first: bool = False) -> None:
        self._asks_first = ask_first and (self._asks_first or not self._wants_all)
        self._wants_all = True
        self._woken()

    def want_topics(self, names: Iterable[str]) -> None:
        self._topics.update(names)
        if len(self._topics) > TOPICS_IN_ONE_REQUEST:
            # All topics are sent in parts.
            self._wants_all = True
            self._asks_first = False
        self._woken()

    def send_heartbeat(self) -> None:
        if self.is_registered and self._connection is not None and not self._connection.is_closing:
            with contextlib.suppress(RemotingError):
                self._connection.call_oneway(self._registration.heartbeat())

    def connection_closed(self, connection: Connection) -> None:
        """Handle a closed connection: the name server has forgotten the broker, so register again without waiting
        for the period."""
        if connection is self._connection and not self._is_leaving:
            self._connection = None
            self.is_registered = False
            self.want_all()

    def drop(self) -> None:
        self._is_leaving = True
        self._task.cancel()

    async def leave(self) -> None:
        """Wait for the request in flight, so that it does not arrive after the unregistration; then unregister."""
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
            log.warning("registration: unregistering from name server %s failed: %s", self.address, error)

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
            except Exception as error:
                # Any error: if this task ended, the broker would not register with this name server again.
                self._failed(error)
                pause = min(max(pause * 2, self._registration.first_pause), MAX_BACKOFF)
                await self._pause(pause)
                self._wake.set()
                continue
            pause = 0.0
            if not self._wants_all and not self._topics:
                self.settled.set()

    async def _tell(self) -> None:
        """Send what is pending; everything if this name server may not know the broker."""
        connection = await self._client.connection(self.address)
        self._connection = connection
        if self._wants_all or not self.is_registered:
            asks_first = self._asks_first and self.is_registered
            # Taken before the requests are built: changes made while these are in flight are sent after them.
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
        # A copy, because the connection writes its opaque into it and the other clients send the same request.
        answer = await connection.call(dataclasses.replace(request), self._registration.answer_seconds)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"response code {answer.code}: {answer.remark or 'no reason given'}")
        self._registration.take_master(self.address, answer.ext_fields)
        if answer.body is not None:
            self._registration.take_order(KVTable.decode(answer.body))

    def _succeeded(self) -> None:
        self.is_registered = True
        if self._trouble is not None:
            self._trouble = None
            log.info("registration: registered with name server %s", self.address)

    def _failed(self, error: Exception) -> None:
        is_expected = isinstance(error, RemotingError | ProtocolError)
        trouble = str(error) if is_expected else f"{type(error).__name__}: {error}"
        # What the name server knows is now unknown, so the next registration is a full one.
        self.is_registered = False
        self._wants_all = True
        self._asks_first = False
        self.settled.set()
        if not self._trouble:
            log.warning(
                "registration: name server %s failed, will retry: %s",
                self.address,
                trouble,
                exc_info=None if is_expected else error,
            )
        self._trouble = trouble

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt; only ``leave`` ends the wait early."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._is_leaving:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), left)
