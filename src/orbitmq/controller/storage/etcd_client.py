"""Client of etcd's JSON gateway (v3, etcd 3.4 or newer): HTTP/1.1 on asyncio, several endpoints, TLS and passwords.

Just what a controller needs: ranges, transactions and leases. Keys and values are base64 and int64 are strings
there; callers see bytes and ints.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MAX_RESPONSE = 64 << 20
PAGE = 500
"""Keys of one range response."""
UNAUTHENTICATED = 16
"""gRPC code of a missing or expired token."""


class EtcdError(Exception):
    """A request to etcd failed. Unless ``is_unsent``, etcd may have done it."""

    def __init__(self, text: str, *, is_unsent: bool = False, code: int | None = None) -> None:
        super().__init__(text)
        self.is_unsent = is_unsent
        self.code = code


@dataclasses.dataclass(frozen=True, slots=True)
class KeyValue:
    """One key of a range."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """User and password of etcd."""

    user: str
    password: str = dataclasses.field(repr=False)


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class EtcdClient:
    """Requests to an etcd cluster; each goes to the endpoint that answered last, then to the others."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        seconds: float,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """``seconds`` is the time for one attempt at one endpoint, connecting included."""
        self._endpoints = list(endpoints)
        self._seconds = seconds
        self._tls = tls
        self._credentials = credentials
        self._token: str | None = None
        self._idle: dict[str, list[_Stream]] = {}
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        for streams in self._idle.values():
            for _, writer in streams:
                writer.close()
        self._idle.clear()

    # Requests

    async def range(self, prefix: bytes) -> AsyncIterator[KeyValue]:
        """All keys with a prefix, linearizable. Raises EtcdError."""
        start, end = prefix, _after(prefix)
        while True:
            answer = await self.call(
                "kv/range", {"key": _text(start), "range_end": _text(end), "limit": str(PAGE)}, retries=True
            )
            found = [_key_value(one) for one in answer.get("kvs", ())]
            for one in found:
                yield one
            if not answer.get("more") or not found:
                return
            start = found[-1].key + b"\0"

    async def txn(self, compares: Sequence[dict[str, Any]], operations: Sequence[dict[str, Any]]) -> int | None:
        """The revision of a transaction; None if a comparison failed. Raises EtcdError, and is not repeated."""
        answer = await self.call("kv/txn", {"compare": list(compares), "success": list(operations)}, retries=False)
        return int(answer["header"]["revision"]) if answer.get("succeeded") else None

    async def grant(self, seconds: int) -> tuple[int, int]:
        """A lease: its id and time to live."""
        answer = await self.call("lease/grant", {"TTL": str(seconds)}, retries=True)
        return int(answer["ID"]), int(answer["TTL"])

    async def keep_alive(self, lease: int) -> int:
        """The new time to live of a lease; 0 if it is gone."""
        answer = await self.call("lease/keepalive", {"ID": str(lease)}, retries=True)
        return int(answer.get("result", {}).get("TTL", 0))

    async def revoke(self, lease: int) -> None:
        await self.call("lease/revoke", {"ID": str(lease)}, retries=False)

    # Calls

    async def call(self, method: str, request: dict[str, Any], *, retries: bool) -> dict[str, Any]:
        """The answer of the first endpoint that has one. Raises EtcdError.

        A request that may not be repeated goes to the next endpoint only if this one cannot have received it.
        """
        failures = []
        for endpoint in tuple(self._endpoints):
            try:
                return await self._authenticated(endpoint, method, request)
            except EtcdError as error:
                failures.append(f"{endpoint}: {error}")
                if not (retries or error.is_unsent):
                    break
                # The next request begins with another endpoint.
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)
        raise EtcdError("; ".join(failures))

    async def _authenticated(self, endpoint: str, method: str, request: dict[str, Any]) -> dict[str, Any]:
        if self._credentials is not None and self._token is None:
            await self._authenticate(endpoint, self._credentials)
        try:
            return await self._timed(endpoint, method, request)
        except EtcdError as error:
            if self._credentials is None or error.code != UNAUTHENTICATED:
                raise
        await self._authenticate(endpoint, self._credentials)
        return await self._timed(endpoint, method, request)

    async def _authenticate(self, endpoint: str, credentials: Credentials) -> None:
        self._token = None
        answer = await self._timed(
            endpoint, "auth/authenticate", {"name": credentials.user, "password": credentials.password}
        )
        self._token = str(answer["token"])

    async def _timed(self, endpoint: str, method: str, request: dict[str, Any]) -> dict[str, Any]:
        sent = False

        def note_sent() -> None:
            nonlocal sent
            sent = True

        try:
            async with asyncio.timeout(self._seconds):
                stream = await self._stream(endpoint)
                try:
                    note_sent()
                    status, body = await _exchange(stream, endpoint, method, request, self._token)
                except BaseException:
                    stream[1].close()
                    raise
        except TimeoutError:
            raise EtcdError(f"no answer within {self._seconds:g} s", is_unsent=not sent) from None
        except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
            raise EtcdError(str(error) or type(error).__name__, is_unsent=not sent) from error
        self._keep(endpoint, stream)
        return _checked(status, body)

    async def _stream(self, endpoint: str) -> _Stream:
        idle = self._idle.get(endpoint)
        while idle:
            reader, writer = idle.pop()
            if not writer.is_closing() and not reader.at_eof():
                return reader, writer
            writer.close()
        parts = urlsplit(endpoint)
        assert parts.hostname is not None, "the settings were checked"
        tls = self._tls if parts.scheme == "https" else None
        return await asyncio.open_connection(parts.hostname, parts.port, ssl=tls)

    def _keep(self, endpoint: str, stream: _Stream) -> None:
        idle = self._idle.setdefault(endpoint, [])
        if self._closed or len(idle) >= 4:
            stream[1].close()
        else:
            idle.append(stream)


def tls_context(ca_file: str, cert_file: str, key_file: str) -> ssl.SSLContext:
    """The TLS of https endpoints. Raises OSError, ssl.SSLError."""
    context = ssl.create_default_context(cafile=ca_file or None)
    if cert_file:
        context.load_cert_chain(cert_file, key_file)
    return context


# Comparisons and operations of transactions


def has_revision(key: bytes, target: str, revision: int) -> dict[str, Any]:
    """A comparison of ``create`` or ``mod`` revision; 0 is a key that does not exist."""
    return {"key": _text(key), "target": target.upper(), f"{target}_revision": str(revision), "result": "EQUAL"}


def put(key: bytes, value: bytes, lease: int = 0) -> dict[str, Any]:
    return {"request_put": {"key": _text(key), "value": _text(value), "lease": str(lease)}}


def delete(key: bytes) -> dict[str, Any]:
    return {"request_delete_range": {"key": _text(key)}}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _after(prefix: bytes) -> bytes:
    """The first key behind those with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _key_value(found: dict[str, Any]) -> KeyValue:
    return KeyValue(
        base64.b64decode(found["key"]),
        base64.b64decode(found.get("value", "")),
        int(found["create_revision"]),
        int(found["mod_revision"]),
        int(found.get("lease", 0)),
    )


# HTTP


async def _exchange(
    stream: _Stream, endpoint: str, method: str, request: dict[str, Any], token: str | None
) -> tuple[int, bytes]:
    reader, writer = stream
    body = orjson.dumps(request)
    authorization = f"Authorization: {token}\r\n" if token else ""
    writer.write(
        f"POST /v3/{method} HTTP/1.1\r\nHost: {urlsplit(endpoint).netloc}\r\nContent-Type: application/json\r\n"
        f"{authorization}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    status = int((await reader.readuntil(b"\r\n")).split()[1])
    headers = {}
    while line := (await reader.readuntil(b"\r\n")).strip():
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip().lower()
    if headers.get(b"transfer-encoding") == b"chunked":
        return status, await _chunked(reader)
    length = int(headers.get(b"content-length", b"0"))
    if length > MAX_RESPONSE:
        raise ValueError(f"the response has {length} bytes")
    return status, await reader.readexactly(length)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        length = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        size += length
        if size > MAX_RESPONSE:
            raise ValueError(f"the response has more than {MAX_RESPONSE} bytes")
        part = await reader.readexactly(length + 2)
        if not length:
            return b"".join(parts)
        parts.append(part[:-2])


def _checked(status: int, body: bytes) -> dict[str, Any]:
    try:
        # A stream, of which the first message counts: the gateway ends it after one.
        answer = orjson.loads(body.partition(b"\n")[0])
    except ValueError:
        raise EtcdError(f"status {status}: not an answer of etcd") from None
    if not isinstance(answer, dict):
        raise EtcdError(f"status {status}: not an answer of etcd")
    if status != 200 or "error" in answer:
        error = answer.get("error", answer)
        text = error.get("message", error) if isinstance(error, dict) else answer.get("message", error)
        raise EtcdError(f"etcd refuses: {text}", code=answer.get("code"))
    return answer
