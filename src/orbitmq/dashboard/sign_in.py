"""The sign-in form and the assets: plain HTML, so that nothing of the pages is reachable without a session."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from orbitmq.admin.errors import AdminError
from orbitmq.dashboard.auth.oidc import WAIT_SECONDS
from orbitmq.dashboard.auth.roles import NotSignedInError
from orbitmq.dashboard.auth.sessions import MAX_SECONDS
from orbitmq.dashboard.rest.guard import session_cookie

if TYPE_CHECKING:
    from orbitmq.dashboard.console import Console

STATE_COOKIE = "orbitmq_oidc"
ASSETS = Path(__file__).parent / "assets"
_ASSET_NAMES = frozenset(path.name for path in ASSETS.iterdir())
_TARGET = re.compile(r"/(?!/)[\w\-./%~]*")

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in - OrbitMQ console</title>
<link rel="icon" href="/assets/logo.svg">
<link rel="stylesheet" href="/assets/sign-in.css">
</head>
<body>
<main>
<form method="post" action="/login">
<img src="/assets/logo.svg" alt="" width="44" height="44">
<h1>OrbitMQ console</h1>
{problem}
<label for="user">User</label>
<input id="user" name="user" autocomplete="username" autocapitalize="none" required maxlength="64" autofocus>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required maxlength="256">
<input type="hidden" name="next" value="{target}">
<button type="submit">Sign in</button>
{provider}
</form>
</main>
</body>
</html>
"""


def sign_in_routes(console: Console) -> APIRouter:
    """Routes of the form and of the assets."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login")
    async def form(next: str = "/") -> Response:  # noqa: A002 - the name in the URL
        return _form(console, next, "")

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        fields = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=10)
        user, password, target = (fields.get(name, [""])[0] for name in ("user", "password", "next"))
        address: str = request.state.address
        try:
            found = await console.users.sign_in(user, password, address)
        except NotSignedInError as error:
            console.audit.record(user[:64], address, "", "sign in", "", str(error))
            return _form(console, target, str(error), 401)
        token, _ = console.sessions.begin(found.name)
        console.audit.record(found.name, address, "", "sign in", "")
        response = RedirectResponse(_safe(target), 303)
        cookie = session_cookie(token, is_secure=console.config.secure_cookies, max_age=int(MAX_SECONDS))
        response.headers["set-cookie"] = cookie
        return response

    @router.get("/login/oidc")
    async def to_provider(request: Request, next: str = "/") -> Response:  # noqa: A002 - the name in the URL
        if console.oidc is None:
            return Response(status_code=404)
        try:
            address, state = await console.oidc.begin(_callback(request, console), _safe(next))
        except AdminError as error:
            return _form(console, next, str(error), 502)
        response = RedirectResponse(address, 303)
        response.headers["set-cookie"] = _state_cookie(state, is_secure=console.config.secure_cookies)
        return response

    @router.get("/login/oidc/callback")
    async def from_provider(request: Request) -> Response:
        if console.oidc is None:
            return Response(status_code=404)
        address: str = request.state.address
        try:
            found = await console.oidc.finish(request.query_params, request.cookies.get(STATE_COOKIE, ""))
        except AdminError as error:
            console.audit.record("", address, "", "sign in", console.oidc.config.host, str(error))
            return _form(console, "/", str(error), 401)
        token, _ = console.sessions.begin(found.name, found.role)
        console.audit.record(found.name, address, "", "sign in", console.oidc.config.host)
        response = RedirectResponse(found.target, 303)
        is_secure = console.config.secure_cookies
        response.headers.append("set-cookie", session_cookie(token, is_secure=is_secure, max_age=int(MAX_SECONDS)))
        response.headers.append("set-cookie", _state_cookie("", is_secure=is_secure))
        return response

    @router.get("/assets/{name}")
    async def asset(name: str) -> Response:
        if name not in _ASSET_NAMES:
            return Response(status_code=404)
        return FileResponse(ASSETS / name, headers={"cache-control": "public, max-age=3600"})

    return router


def _form(console: Console, target: str, problem: str, status: int = 200) -> HTMLResponse:
    line = f'<p role="alert">{html.escape(problem[:1].upper() + problem[1:])}.</p>' if problem else ""
    provider = ""
    if console.oidc is not None:
        address = f"/login/oidc?next={quote(_safe(target))}"
        host = html.escape(console.oidc.config.host)
        provider = f'<a class="provider" href="{html.escape(address)}">Sign in with {host}</a>'
    return HTMLResponse(PAGE.format(problem=line, target=html.escape(_safe(target)), provider=provider), status)


def _callback(request: Request, console: Console) -> str:
    """Where the provider sends browsers back to: the guard has checked the host."""
    scheme = "https" if console.config.secure_cookies else request.url.scheme
    return f"{scheme}://{request.url.netloc}/login/oidc/callback"


def _state_cookie(state: str, *, is_secure: bool) -> str:
    """The header value that keeps the state in the browser that began, or forgets it."""
    age = int(WAIT_SECONDS) if state else 0
    secure = "; Secure" if is_secure else ""
    return f"{STATE_COOKIE}={state}; Path=/login/oidc; HttpOnly; SameSite=Lax; Max-Age={age}{secure}"


def _safe(target: str) -> str:
    """A path of this console; anything else, as ``//other.example``, is replaced."""
    return target if _TARGET.fullmatch(target) else "/"
