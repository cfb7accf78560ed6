"""The sign-in form and the assets: plain HTML, so that nothing of the pages is reachable without a session."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from orbitmq.dashboard.auth.roles import NotSignedInError
from orbitmq.dashboard.auth.sessions import MAX_SECONDS
from orbitmq.dashboard.rest.guard import session_cookie

if TYPE_CHECKING:
    from orbitmq.dashboard.console import Console

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
        return _form(next, "")

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        fields = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=10)
        user, password, target = (fields.get(name, [""])[0] for name in ("user", "password", "next"))
        address: str = request.state.address
        try:
            found = await console.users.sign_in(user, password, address)
        except NotSignedInError as error:
            console.audit.record(user[:64], address, "", "sign in", "", str(error))
            return _form(target, str(error), 401)
        token, _ = console.sessions.begin(found.name)
        console.audit.record(found.name, address, "", "sign in", "")
        response = RedirectResponse(_safe(target), 303)
        cookie = session_cookie(token, is_secure=console.config.secure_cookies, max_age=int(MAX_SECONDS))
        response.headers["set-cookie"] = cookie
        return response

    @router.get("/assets/{name}")
    async def asset(name: str) -> Response:
        if name not in _ASSET_NAMES:
            return Response(status_code=404)
        return FileResponse(ASSETS / name, headers={"cache-control": "public, max-age=3600"})

    return router


def _form(target: str, problem: str, status: int = 200) -> HTMLResponse:
    line = f'<p role="alert">{html.escape(problem.capitalize())}.</p>' if problem else ""
    return HTMLResponse(PAGE.format(problem=line, target=html.escape(_safe(target))), status)


def _safe(target: str) -> str:
    """A path of this console; anything else, as ``//other.example``, is replaced."""
    return target if _TARGET.fullmatch(target) else "/"
