"""Sign-in by OpenID Connect: the authorization code flow with PKCE, and the role from a claim.

The console takes the ID token from the provider's token endpoint itself, over TLS, so that the connection says who
made it (OpenID Connect Core, 3.1.3.7): its claims are checked, its signature is not needed.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.dashboard.auth.roles import NotSignedInError, Role
from orbitmq.dashboard.config import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import httpx

    from orbitmq.platform.clock import Clock

WAIT_SECONDS = 600.0
"""Time for a sign-in at the provider."""
MAX_WAITING = 1000
METADATA_SECONDS = 3600.0
HTTP_SECONDS = 10.0
MAX_BYTES = 1 << 20
SKEW_SECONDS = 60
ANY = "*"
SCOPE = "openid profile email"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """A provider, and who gets which role."""

    issuer: str
    client_id: str
    client_secret: str = dataclasses.field(default="", repr=False)
    claim: str = "groups"
    """The claim with the groups or roles of a user."""
    roles: tuple[tuple[Role, str], ...] = ((Role.VIEWER, ANY),)
    """Pairs of a role and the value of the claim that gives it; ``*`` for everybody who can sign in."""
    scope: str = SCOPE

    def __post_init__(self) -> None:
        _check_url(self.issuer)
        if not self.client_id:
            raise InvalidRequestError("OpenID Connect needs a client id")

    @property
    def host(self) -> str:
        """The provider, for people."""
        return urlsplit(self.issuer).hostname or self.issuer

    def role_of(self, claims: Mapping[str, Any]) -> Role | None:
        """The highest role that the claims give."""
        found = claims.get(self.claim, [])
        values = {str(one) for one in found} if isinstance(found, list) else {str(found)}
        given = [role for role, value in self.roles if value == ANY or value in values]
        return max(given, key=list(Role).index, default=None)


def parse_roles(texts: Iterable[str]) -> tuple[tuple[Role, str], ...]:
    """Pairs from options: ``operator=messaging-team``. Raises InvalidRequestError."""
    found = []
    for text in texts:
        role, _, value = text.partition("=")
        if role not in {one.value for one in Role} or not value:
            raise InvalidRequestError(f"a role is viewer=GROUP, operator=GROUP or admin=GROUP, not {text!r}")
        found.append((Role(role), value))
    return tuple(found) or ((Role.VIEWER, ANY),)


@dataclasses.dataclass(frozen=True, slots=True)
class Federated:
    """User that has signed in at the provider."""

    name: str
    role: Role
    target: str
    """The page that the user wanted."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Begun:
    verifier: str
    nonce: str
    target: str
    redirect: str
    until: float


class Oidc:
    """Sign-ins at one provider."""

    def __init__(self, config: OidcConfig, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._begun: dict[str, _Begun] = {}
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0
        self._lock = asyncio.Lock()

    async def begin(self, redirect: str, target: str) -> tuple[str, str]:
        """The address at the provider, and the state that the browser keeps. Raises NotSignedInError."""
        metadata = await self._discover()
        now = self._clock.monotonic()
        self._begun = {state: one for state, one in self._begun.items() if one.until > now}
        while len(self._begun) >= MAX_WAITING:
            del self._begun[next(iter(self._begun))]
        state, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        self._begun[state] = _Begun(verifier, nonce, target, redirect, now + WAIT_SECONDS)
        challenge = _unpadded(hashlib.sha256(verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self.config.client_id,
            "redirect_uri": redirect,
            "scope": self.config.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = metadata["authorization_endpoint"]
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", state

    async def finish(self, parameters: Mapping[str, str], kept: str) -> Federated:
        """User who came back from the provider; ``kept`` is the state of the browser. Raises NotSignedInError."""
        state = parameters.get("state", "")
        begun = self._begun.pop(state, None)
        if (
            begun is None
            or begun.until <= self._clock.monotonic()
            or not hmac.compare_digest(state.encode(), kept.encode())
        ):
            raise NotSignedInError("the sign-in was begun too long ago, or elsewhere: try again")
        if parameters.get("error"):
            raise NotSignedInError(f"{self.config.host} refused: {parameters['error'][:100]}")
        metadata = await self._discover()
        tokens = await self._exchange(metadata, parameters.get("code", ""), begun)
        claims = self._checked(tokens.get("id_token"), begun.nonce)
        if self.config.claim not in claims and metadata.get("userinfo_endpoint") and tokens.get("access_token"):
            claims = await self._with_userinfo(metadata, str(tokens["access_token"]), claims)
        name = str(claims.get("preferred_username") or claims.get("email") or claims["sub"])[:64]
        role = self.config.role_of(claims)
        if role is None:
            raise NotSignedInError(f"{name} has no role in this console")
        return Federated(f"{name} ({self.config.host})", role, begun.target)

    async def _discover(self) -> dict[str, Any]:
        async with self._lock:
            if self._clock.monotonic() >= self._metadata_until:
                address = f"{self.config.issuer.rstrip('/')}/.well-known/openid-configuration"
                found = await self._json("GET", address)
                if found.get("issuer") != self.config.issuer:
                    raise NotSignedInError(f"{address} is of another issuer")
                for name in ("authorization_endpoint", "token_endpoint"):
                    _check_url(str(found.get(name, "")))
                self._metadata, self._metadata_until = found, self._clock.monotonic() + METADATA_SECONDS
            return self._metadata

    async def _exchange(self, metadata: Mapping[str, Any], code: str, begun: _Begun) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect,
            "client_id": self.config.client_id,
            "code_verifier": begun.verifier,
        }
        auth = None
        if self.config.client_secret:
            methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
            if "client_secret_basic" in methods:
                auth = (self.config.client_id, self.config.client_secret)
            else:
                form["client_secret"] = self.config.client_secret
        return await self._json("POST", metadata["token_endpoint"], data=form, auth=auth)

    async def _with_userinfo(
        self, metadata: Mapping[str, Any], token: str, claims: dict[str, Any]
    ) -> dict[str, Any]:
        address = str(metadata["userinfo_endpoint"])
        _check_url(address)
        more = await self._json("GET", address, headers={"authorization": f"Bearer {token}"})
        if more.get("sub") != claims["sub"]:
            raise NotSignedInError(f"{self.config.host} described another user")
        return {**more, **claims}

    def _checked(self, token: Any, nonce: str) -> dict[str, Any]:
        """The claims of an ID token. Raises NotSignedInError."""
        claims = _claims(token)
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        now = self._clock.now_ms() / 1000
        expires = claims.get("exp")
        is_good = (
            claims.get("iss") == self.config.issuer
            and self.config.client_id in audiences
            and claims.get("azp", self.config.client_id) == self.config.client_id
            and isinstance(expires, int | float)
            and expires + SKEW_SECONDS > now
            and hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode())
            and isinstance(claims.get("sub"), str)
        )
        if not is_good:
            raise NotSignedInError(f"the token of {self.config.host} is not for this sign-in")
        return claims

    async def _json(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        import httpx  # noqa: PLC0415 - only where it is used

        try:
            async with (
                httpx.AsyncClient(timeout=HTTP_SECONDS, follow_redirects=False) as client,
                client.stream(method, address, **options) as answer,
            ):
                body = await _bounded(answer)
                found = json.loads(body) if answer.status_code == 200 else None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise NotSignedInError(
                f"{self.config.host} cannot be used: {str(error)[:200] or type(error).__name__}"
            ) from error
        if not isinstance(found, dict):
            raise NotSignedInError(f"{self.config.host} answered with status {answer.status_code}")
        return found


async def _bounded(answer: httpx.Response) -> bytes:
    """Raises ValueError for a body that is too large."""
    body = bytearray()
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > MAX_BYTES:
            raise ValueError("too large")
    return bytes(body)


def _claims(token: Any) -> dict[str, Any]:
    """Raises NotSignedInError."""
    parts = token.split(".") if isinstance(token, str) else []
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)) if len(parts) == 3 else b""
        found = json.loads(text)
    except ValueError as error:
        raise NotSignedInError("the provider sent no ID token") from error
    if not isinstance(found, dict):
        raise NotSignedInError("the provider sent no ID token")
    return found


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _check_url(text: str) -> None:
    """Raises InvalidRequestError for anything but HTTPS; HTTP is for a provider on this machine."""
    parts = urlsplit(text)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or parts.hostname not in LOOPBACK:
        raise InvalidRequestError(f"OpenID Connect needs https, not {text!r}")
