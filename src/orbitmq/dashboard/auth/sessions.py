"""Sessions: a random token in a cookie or a header, its user, and the token against forged requests."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from orbitmq.dashboard.auth.roles import Actor, NotSignedInError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.dashboard.auth.roles import Role
    from orbitmq.dashboard.auth.users import Users

IDLE_SECONDS = 8 * 3600.0
MAX_SECONDS = 24 * 3600.0
MAX_SESSIONS = 2000
MAX_PER_USER = 50


@dataclasses.dataclass(slots=True)
class Session:
    """One sign-in. ``key`` is the hash of the token, which only the browser has."""

    key: str
    user: str
    csrf: str
    begun: float
    used: float
    role: Role | None = None
    """The role that a provider gave; None for a user of the console, whose role is in its file."""


class Sessions:
    """The open sessions, in memory: a restart ends them all."""

    def __init__(self, users: Users, now: Callable[[], float]) -> None:
        self._users = users
        self._now = now
        self._sessions: dict[str, Session] = {}

    def begin(self, user: str, role: Role | None = None) -> tuple[str, Session]:
        """A new session of a user, with the token that stands for it. The oldest one gives way at a limit."""
        self._expire()
        own = [session for session in self._sessions.values() if session.user == user]
        if len(own) >= MAX_PER_USER:
            self.end(own[0].key)
        elif len(self._sessions) >= MAX_SESSIONS:
            self.end(next(iter(self._sessions)))
        token = secrets.token_urlsafe(32)
        now = self._now()
        session = Session(_key(token), user, secrets.token_urlsafe(32), now, now, role)
        self._sessions[session.key] = session
        return token, session

    def of_token(self, token: str) -> Session | None:
        """The open session of a token, which counts as used now."""
        session = self._open(_key(token))
        if session is not None:
            session.used = self._now()
        return session

    def actor(self, session: Session, address: str) -> Actor:
        """The user of a session with today's role. Raises NotSignedInError if the user is gone."""
        if session.role is not None:
            return Actor(session.user, session.role, address, session.key)
        user = self._users.get(session.user)
        if user is None:
            raise NotSignedInError("the user does not exist any more")
        return Actor(user.name, user.role, address, session.key)

    def current(self, actor: Actor) -> Actor:
        """The actor of a page that is open for a while, with today's role. Raises NotSignedInError."""
        session = self._open(actor.session)
        if session is None:
            raise NotSignedInError("the session has ended: sign in again")
        session.used = self._now()
        return self.actor(session, actor.address)

    def check(self, actor: Actor) -> None:
        """Raises NotSignedInError if the session of a page has ended. It does not count as used."""
        if self._open(actor.session) is None:
            raise NotSignedInError("the session has ended: sign in again")

    def end(self, key: str) -> None:
        self._sessions.pop(key, None)

    def end_of_user(self, user: str) -> None:
        """End all sessions of a user: after a new password, or when it is deleted."""
        for session in [one for one in self._sessions.values() if one.user == user]:
            self.end(session.key)

    def _open(self, key: str) -> Session | None:
        session = self._sessions.get(key)
        if session is not None and self._is_over(session):
            self.end(key)
            return None
        return session

    def _is_over(self, session: Session) -> bool:
        now = self._now()
        return now - session.used > IDLE_SECONDS or now - session.begun > MAX_SECONDS

    def _expire(self) -> None:
        for session in [one for one in self._sessions.values() if self._is_over(one)]:
            self.end(session.key)


def is_csrf_token(session: Session, text: str) -> bool:
    return hmac.compare_digest(session.csrf.encode(), text.encode())


def _key(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
