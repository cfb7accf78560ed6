"""Session of an operator: requests to name servers and brokers, with limits, and errors as sentences."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.admin.errors import AdminError, PartialFailureError, RefusedError, UnreachableError, refusal
from orbitmq.client.credentials import signer_of
from orbitmq.client.errors import NotRunningError
from orbitmq.protocol.codes import LanguageCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import CallTimeoutError, RemotingClient, RemotingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from orbitmq.admin.config import AdminConfig
    from orbitmq.protocol.bodies import Body

T = TypeVar("T")
KeyT = TypeVar("KeyT")
BodyT = TypeVar("BodyT", bound="Body")

LONG = 3
"""Factor of the timeout for requests that compute over a whole broker, as in RocketMQ's tools."""


class AdminSession:
    """Connections of one operator. It belongs to the event loop that it was started on."""

    def __init__(self, config: AdminConfig) -> None:
        self.config = config
        self._client: RemotingClient | None = None
        self._room = asyncio.Semaphore(config.max_concurrent_requests)

    async def start(self) -> None:
        """Make ready; connections are opened by the first request to a server."""
        if self._client is not None:
            raise NotRunningError("it is already running")
        signer = None if self.config.sign is not None else signer_of(self.config.credentials)
        self._client = RemotingClient(tls=self.config.tls, signer=signer)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def now_ms(self) -> int:
        return self.config.clock.now_ms()

    # One request

    async def exchange(
        self,
        address: str,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes | None = None,
        *,
        seconds: float | None = None,
    ) -> Command:
        """The response of a server, with any code. Raises UnreachableError."""
        if self._client is None:
            raise NotRunningError("it is not running: use `async with`, or start() it")
        command = Command(code, ext_fields=_texts(fields or {}), body=body, language=LanguageCode.PYTHON)
        if self.config.sign is not None:
            self.config.sign(command)
        limit = self.config.timeout if seconds is None else seconds
        try:
            async with self._room:
                return await self._client.call(address, command, limit)
        except CallTimeoutError:
            raise UnreachableError(address, f"no response within {limit:g} s") from None
        except RemotingError as error:
            raise UnreachableError(address, str(error)) from error

    async def call(
        self,
        address: str,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes | None = None,
        *,
        seconds: float | None = None,
    ) -> Command:
        """The successful response of a server. Raises RefusedError for another code, UnreachableError."""
        answer = await self.exchange(address, code, fields, body, seconds=seconds)
        if answer.code != ResponseCode.SUCCESS:
            raise refusal(answer.code, answer.remark, address)
        return answer

    async def call_name_server(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes | None = None
    ) -> Command:
        """The successful response of the first name server that responds. Raises RefusedError, UnreachableError."""
        last: UnreachableError | None = None
        for address in self.config.name_servers:
            try:
                return await self.call(address, code, fields, body)
            except UnreachableError as error:
                last = error
        assert last is not None
        if len(self.config.name_servers) == 1:
            raise last
        raise UnreachableError(f"none of the name servers {';'.join(self.config.name_servers)}", last.reason)

    async def call_name_servers(
        self, what: str, code: int, fields: Mapping[str, object] | None = None, body: bytes | None = None
    ) -> dict[str, Command]:
        """The responses of all name servers, by address. Raises PartialFailureError."""
        return await self.at_all(
            what, self.config.name_servers, lambda address: self.call(address, code, fields, body)
        )

    # Many requests

    async def at_all(
        self, what: str, addresses: Iterable[str], request: Callable[[str], Awaitable[T]]
    ) -> dict[str, T]:
        """The results of a change at several servers. Raises PartialFailureError, or the error that all have."""
        done, failed = await self.gather(addresses, request)
        if failed:
            first = next(iter(failed.values()))
            if not done and len({(type(error), getattr(error, "code", None)) for error in failed.values()}) == 1:
                raise first
            raise PartialFailureError(what, tuple(done), failed)
        return done

    async def from_all(self, keys: Iterable[KeyT], request: Callable[[KeyT], Awaitable[T]]) -> dict[KeyT, T]:
        """The results of many reads, by key. One that fails raises its error."""
        done, failed = await self.gather(keys, request)
        if failed:
            raise next(iter(failed.values()))
        return done

    async def gather(
        self, keys: Iterable[KeyT], request: Callable[[KeyT], Awaitable[T]]
    ) -> tuple[dict[KeyT, T], dict[KeyT, AdminError]]:
        """The results and the errors of many requests, by key, with the session's limit of concurrency."""
        chosen = list(dict.fromkeys(keys))
        async with _cancelled_at_exit([asyncio.ensure_future(_as_task(request(key))) for key in chosen]) as tasks:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        done: dict[KeyT, T] = {}
        failed: dict[KeyT, AdminError] = {}
        for key, result in zip(chosen, results, strict=True):
            if isinstance(result, AdminError):
                failed[key] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                done[key] = result
        return done, failed


@contextlib.asynccontextmanager
async def _cancelled_at_exit(tasks: list[asyncio.Task[T]]) -> AsyncIterator[list[asyncio.Task[T]]]:
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _as_task(work: Awaitable[T]) -> T:
    return await work


def _texts(fields: Mapping[str, object]) -> dict[str, str]:
    """Header fields as they travel; None is left out."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
        if value is not None
    }


def decode(kind: type[BodyT], answer: Command, address: str) -> BodyT:
    """The body of a response. Raises RefusedError for a malformed one."""
    try:
        return kind.decode(answer.body or b"{}")
    except ProtocolError as error:
        raise unreadable(error, address) from error


def unreadable(error: ProtocolError, address: str) -> RefusedError:
    """The error of a malformed response."""
    return RefusedError(ResponseCode.SYSTEM_ERROR, f"its response cannot be read: {error}", address)


def field_of(answer: Command, name: str, address: str) -> int:
    """A number of a response's header. Raises RefusedError if it is missing."""
    text: Any = answer.ext_fields.get(name)
    try:
        return int(text)
    except (TypeError, ValueError):
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"its response has no {name}", address) from None
