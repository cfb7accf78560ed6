"""Sign-in and sign-out."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from orbitmq.dashboard.auth.roles import NotSignedInError, Role
from orbitmq.dashboard.auth.sessions import MAX_SECONDS
from orbitmq.dashboard.rest.context import ConsoleDep
from orbitmq.dashboard.rest.guard import session_cookie

router = APIRouter(prefix="/session", tags=["session"])


class Credentials(BaseModel):
    """A name and a password."""

    user: Annotated[str, Field(max_length=64)]
    password: Annotated[str, Field(max_length=256)]


class SessionView(BaseModel):
    """The session. Send ``csrf`` in the header X-CSRF-Token with changes, or ``token`` as a bearer token."""

    user: str
    role: Role
    csrf: str
    read_only: bool
    token: str | None = None
    """Only in the response to a sign-in."""


@router.post("", summary="Sign in")
async def sign_in(given: Credentials, request: Request, response: Response, console: ConsoleDep) -> SessionView:
    address: str = request.state.address
    if not console.config.login:
        return await show(request, console)
    try:
        user = await console.users.sign_in(given.user, given.password, address)
    except NotSignedInError as error:
        console.audit.record(given.user[:64], address, "", "sign in", "", str(error))
        raise
    token, session = console.sessions.begin(user.name)
    console.audit.record(user.name, address, "", "sign in", "")
    cookie = session_cookie(token, is_secure=console.config.secure_cookies, max_age=int(MAX_SECONDS))
    response.headers["set-cookie"] = cookie
    return SessionView(
        user=user.name, role=user.role, csrf=session.csrf, read_only=console.config.read_only, token=token
    )


@router.get("", summary="The current session")
async def show(request: Request, console: ConsoleDep) -> SessionView:
    actor, session = request.state.actor, request.state.session
    if actor is None:
        raise NotSignedInError("sign in first")
    csrf = "local" if session is None else session.csrf
    return SessionView(user=actor.user, role=actor.role, csrf=csrf, read_only=console.config.read_only)


@router.delete("", summary="Sign out", status_code=204)
async def sign_out(request: Request, response: Response, console: ConsoleDep) -> None:
    if request.state.session is not None:
        console.sessions.end(request.state.session.key)
    response.headers["set-cookie"] = session_cookie("", is_secure=console.config.secure_cookies, max_age=0)
