"""Guard: checks every request first, its host, size, session and origin, and sets security headers."""

from __future__ import annotations

import json
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from orbitmq.dashboard.auth.roles import Actor, NotSignedInError
from orbitmq.dashboard.auth.sessions import is_csrf_token
from orbitmq.dashboard.config import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from orbitmq.dashboard.auth.sessions import Session
    from orbitmq.dashboard.console import Console

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COOKIE = "orbitmq_session"
CSRF_HEADER = "x-csrf-token"
MAX_BODY = 8 << 20
"""Bytes of a request: a message of 4 MiB as text in JSON, with room for escapes."""
MAX_BODY_BEFORE_LOGIN = 16 << 10
MAX_WEBSOCKET_MESSAGE = 8 << 20

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLIC = frozenset({"/login", "/login/oidc", "/login/oidc/callback", "/api/v1/session", "/favicon.ico"})
PUBLIC_PREFIX = "/assets/"

# NiceGUI compiles templates in the browser and has inline scripts; nothing comes from another host.
CONTENT_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: browsers would then send forms with the origin null, as other sites do.
    "referrer-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class RejectedError(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = error


class Guard:
    """ASGI application around that of the console."""

    def __init__(self, app: Any, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            limit = self._admit(scope, headers)
        except RejectedError as rejection:
            await _reject(scope, rejection, send, headers)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._app(scope, _bounded(receive, limit), _with_headers(scope["path"], send))

    def _admit(self, scope: Scope, headers: dict[str, str]) -> int:
        """Put the actor into the scope. Returns the limit of the body. Raises RejectedError."""
        self._check_host(headers.get("host", ""))
        path: str = scope["path"]
        is_public = path in PUBLIC or path.startswith(PUBLIC_PREFIX)
        client = scope.get("client")
        address = client[0] if client else ""
        session: Session | None = None
        bearer = ""
        if self._console.config.login:
            scheme, _, text = headers.get("authorization", "").partition(" ")
            bearer = text.strip() if scheme.lower() == "bearer" else ""
            token = bearer or _cookie(headers.get("cookie", ""))
            session = self._console.sessions.of_token(token) if token else None
            actor = self._actor_of(session, address)
        else:
            actor = self._console.local_actor(address)
        state = scope.setdefault("state", {})
        state["actor"], state["session"], state["address"] = actor, session, address
        if actor is None and not is_public:
            raise RejectedError(401, "not_signed_in", "sign in first")
        if scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS:
            self._check_origin(headers)
            if scope["type"] == "http" and not is_public and not bearer:
                _check_csrf(path, headers, session)
        limit = MAX_BODY_BEFORE_LOGIN if actor is None else MAX_BODY
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limit:
            raise RejectedError(413, "too_large", f"a request has at most {limit} bytes")
        return limit

    def _actor_of(self, session: Session | None, address: str) -> Actor | None:
        if session is None:
            return None
        try:
            return self._console.sessions.actor(session, address)
        except NotSignedInError:
            return None

    def _check_host(self, host: str) -> None:
        """Refuse names that were not configured: a page elsewhere could point its own name at this address."""
        config = self._console.config
        name = urlsplit(f"//{host}").hostname or ""
        if name in config.allowed_hosts or name == config.host.lower():
            return
        if config.is_loopback:
            if name in LOOPBACK:
                return
        elif not config.allowed_hosts:
            # It listens for a network, by a name that this machine may not know.
            return
        raise RejectedError(421, "unknown_host", f"this console is not {name!r}: see --allow-host")

    def _check_origin(self, headers: dict[str, str]) -> None:
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise RejectedError(403, "foreign_origin", "the request comes from a page of another site")


def _check_csrf(path: str, headers: dict[str, str], session: Session | None) -> None:
    """A cookie alone does not permit a change: the page, or the script, must know the session's token as well.

    Without login there is no token; the header itself shows that no form of another site sent the request.
    """
    if not path.startswith("/api/"):
        return
    text = headers.get(CSRF_HEADER, "")
    if not text or (session is not None and not is_csrf_token(session, text)):
        raise RejectedError(403, "csrf", f"a change needs the header {CSRF_HEADER} with the token of the session")


def _cookie(text: str) -> str:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def session_cookie(token: str, *, is_secure: bool, max_age: int) -> str:
    """The header value that sets the cookie, or removes it with ``max_age`` 0."""
    secure = "; Secure" if is_secure else ""
    return f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age={max_age}{secure}"


def _bounded(receive: Receive, limit: int) -> Receive:
    """A body without a length is counted while it is read."""
    seen = 0

    async def read() -> MutableMapping[str, Any]:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            return {"type": "http.disconnect"}
        return message

    return read


def _with_headers(path: str, send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            extra = dict(HEADERS)
            if not path.startswith(("/_nicegui", PUBLIC_PREFIX)):
                extra["cache-control"] = "no-store"
            message["headers"] = [
                *message["headers"],
                *((name.encode(), value.encode()) for name, value in extra.items() if name.encode() not in present),
            ]
        await send(message)

    return send_with_headers


async def _reject(scope: Scope, rejection: RejectedError, send: Send, headers: dict[str, str]) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4401 if rejection.status == 401 else 4403})
        return
    path: str = scope["path"]
    is_page = rejection.status == 401 and not path.startswith("/api/") and scope["method"] in SAFE_METHODS
    send = _with_headers(path, send)
    if is_page and "text/html" in headers.get("accept", "text/html"):
        target = f"/login?next={quote(path)}" if path != "/" else "/login"
        await send({"type": "http.response.start", "status": 303, "headers": [(b"location", target.encode())]})
        await send({"type": "http.response.body", "body": b""})
        return
    body = json.dumps({"error": rejection.error, "message": str(rejection)}).encode()
    response = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": rejection.status, "headers": response})
    await send({"type": "http.response.body", "body": body})
