"""Middleware: application code around every send and every handler call.

A middleware is an object with ``on_send(call)``, ``on_handle(call)`` or both. Each returns a context manager,
usually a generator with ``@contextmanager`` or, for code that awaits, ``@asynccontextmanager``. The part before
its ``yield`` runs before the send or the handler, the rest after it, with ``call.result``, ``call.error`` and
``call.duration``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

from orbitmq.client.errors import InvalidOptionError
from orbitmq.platform.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from orbitmq.client.consumer.subscription import HandlerTraits
    from orbitmq.client.message import Message, Receipt, ReceivedMessage
    from orbitmq.client.producer.hooks import Communication
    from orbitmq.platform.clock import Clock

BRIDGE_SECONDS = 60.0
"""Time limit of a handler in a thread for the asynchronous part of a middleware."""


class _Call:
    """One send or handler call: its outcome is set after it."""

    __slots__ = ("duration", "error", "notes")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """The exception that it raised."""
        self.duration = 0.0
        """Seconds that it took, with its retries."""
        self.notes: dict[str, Any] = {}
        """For middleware: values of its own."""


class SendCall(_Call):
    """A send, with all its attempts. ``messages`` may be changed or replaced before it."""

    __slots__ = ("communication", "group", "messages", "result")

    def __init__(self, group: str, messages: Sequence[Message], communication: Communication) -> None:
        super().__init__()
        self.group = group
        self.messages = list(messages)
        self.communication = communication
        self.result: Sequence[Receipt] = ()
        """The receipts; none of a one-way send."""

    @property
    def message(self) -> Message:
        """The message, or the first one of a batch."""
        return self.messages[0]

    @message.setter
    def message(self, message: Message) -> None:
        self.messages[0] = message

    @property
    def receipt(self) -> Receipt | None:
        return self.result[0] if self.result else None


class HandleCall(_Call):
    """A handler call. ``messages`` may be replaced before it, ``result`` after it."""

    __slots__ = ("group", "messages", "result")

    def __init__(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        super().__init__()
        self.group = group
        self.messages = list(messages)
        self.result: object = None
        """The return value of the handler."""

    @property
    def message(self) -> ReceivedMessage:
        """The message, or the first one of a batch."""
        return self.messages[0]


class Middleware:
    """Base of middleware: does nothing. Override what you need."""

    def on_send(self, call: SendCall) -> Any:  # noqa: ARG002
        return contextlib.nullcontext()

    def on_handle(self, call: HandleCall) -> Any:  # noqa: ARG002
        return contextlib.nullcontext()


class MiddlewareStack:
    """The middleware of one producer or consumer, the first one outermost."""

    def __init__(self, group: str, middleware: Iterable[Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises InvalidOptionError for another object."""
        self._group = group
        self._clock = clock
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of the client, for asynchronous middleware around handlers in threads. Set at the start."""
        every = list(middleware)
        for one in every:
            if not (callable(getattr(one, "on_send", None)) or callable(getattr(one, "on_handle", None))):
                raise InvalidOptionError(f"a middleware has on_send or on_handle: {one!r} has neither")
        self._around_send = [one.on_send for one in every if _overrides(one, "on_send")]
        self._around_handle = [one.on_handle for one in every if _overrides(one, "on_handle")]

    @property
    def wraps_sends(self) -> bool:
        return bool(self._around_send)

    @property
    def wraps_handlers(self) -> bool:
        return bool(self._around_handle)

    # Sends

    async def send(
        self,
        messages: Sequence[Message],
        communication: Communication,
        send: Callable[[Sequence[Message]], Coroutine[Any, Any, Sequence[Receipt]]],
    ) -> Sequence[Receipt]:
        """Send inside the middleware, which may change the messages."""
        call = SendCall(self._group, messages, communication)

        async def work() -> None:
            call.result = await send(call.messages)

        await self._run(call, self._around_send, work)
        return call.result

    # Handlers

    def handler(self, handler: Callable[[Any], Any], traits: HandlerTraits) -> Callable[[Any], Any]:
        """The handler inside the middleware."""
        takes_list = traits.takes_list

        def call_of(argument: Any) -> HandleCall:
            return HandleCall(self._group, argument if takes_list else (argument,))

        def argument_of(call: HandleCall) -> Any:
            return call.messages if takes_list else call.message

        if not traits.runs_on_loop:

            @functools.wraps(handler, updated=())
            def in_thread(argument: Any) -> Any:
                call = call_of(argument)
                self._run_in_thread(call, lambda: handler(argument_of(call)))
                return call.result

            return in_thread

        @functools.wraps(handler, updated=())
        async def on_loop(argument: Any) -> Any:
            call = call_of(argument)

            async def work() -> None:
                returned = handler(argument_of(call))
                call.result = await returned if inspect.isawaitable(returned) else returned

            await self._run(call, self._around_handle, work)
            return call.result

        return on_loop

    # Both

    async def _run(
        self, call: _Call, around: Sequence[Callable[[Any], Any]], work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for one in around:
                manager = one(call)
                if hasattr(manager, "__aenter__"):
                    await stack.enter_async_context(manager)
                else:
                    stack.enter_context(manager)
            began = self._clock.monotonic()
            try:
                await work()
            except BaseException as error:
                call.error = error
                raise
            finally:
                call.duration = self._clock.monotonic() - began

    def _run_in_thread(self, call: HandleCall, work: Callable[[], object]) -> None:
        with contextlib.ExitStack() as stack:
            for one in self._around_handle:
                manager = one(call)
                if hasattr(manager, "__enter__"):
                    stack.enter_context(manager)
                else:
                    stack.enter_context(_OnLoop(manager, self.loop))
            began = self._clock.monotonic()
            try:
                call.result = work()
            except BaseException as error:
                call.error = error
                raise
            finally:
                call.duration = self._clock.monotonic() - began


class _OnLoop:
    """An asynchronous context manager as a plain one, for a thread that is not the loop's."""

    def __init__(self, manager: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        assert loop is not None, "handlers are called after the start"
        self._manager = manager
        self._loop = loop

    def __enter__(self) -> Any:
        return self._wait(self._manager.__aenter__())

    def __exit__(self, *error: object) -> bool:
        return bool(self._wait(self._manager.__aexit__(*error)))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(BRIDGE_SECONDS)


def _overrides(middleware: Any, name: str) -> bool:
    """True if this middleware does anything there."""
    found = getattr(type(middleware), name, None)
    return callable(getattr(middleware, name, None)) and found is not getattr(Middleware, name)
