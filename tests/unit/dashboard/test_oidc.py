"""Sign-in by OpenID Connect, through the console's own routes and guard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.dashboard.auth.oidc import OidcConfig, parse_roles
from orbitmq.dashboard.auth.roles import Role
from support.dashboard.oidc_provider import Provider, oidc_provider
from support.dashboard.rest_client import Rest, rest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    import httpx


@pytest.fixture
def provider() -> Iterator[Provider]:
    with oidc_provider() as running:
        yield running


@pytest.fixture
async def console(provider: Provider, tmp_path: Path) -> AsyncIterator[Rest]:
    roles = parse_roles(["viewer=staff", "operator=ops", "admin=root"])
    oidc = OidcConfig(issuer=provider.issuer, client_id="console", client_secret="s", roles=roles)
    async with rest("127.0.0.1:1", tmp_path, oidc=oidc, history_mib=0) as running:
        yield running


async def _come_back(console: Rest, provider: Provider, **changed: str) -> httpx.Response:
    begun = await console.client.get("/login/oidc", params={"next": "/c/demo/topics"})
    assert begun.status_code == 303
    assert begun.headers["location"].startswith(f"{provider.issuer}/authorization?")
    parameters = {**provider.sign_in(begun.headers["location"]), **changed}
    return await console.client.get("/login/oidc/callback", params=parameters)


async def _role(console: Rest) -> tuple[int, Any]:
    answer = await console.client.get("/api/v1/session")
    return answer.status_code, answer.json().get("role")


async def test_a_user_of_the_provider_has_the_role_of_its_groups(console: Rest, provider: Provider) -> None:
    assert "/login/oidc?next=/c/demo" in (await console.client.get("/login?next=/c/demo")).text
    provider.claims = {"preferred_username": "ann", "groups": ["staff", "ops"]}
    answer = await _come_back(console, provider)
    assert (answer.status_code, answer.headers["location"]) == (303, "/c/demo/topics")
    assert provider.authorization.startswith("Basic ")
    session = (await console.client.get("/api/v1/session")).json()
    assert (session["user"], session["role"]) == ("ann (127.0.0.1)", "operator")
    assert (await console.client.get("/api/v1/users")).status_code == 403
    assert [entry.user for entry in console.console.audit.entries()] == ["ann (127.0.0.1)"]


async def test_groups_may_be_in_the_userinfo(console: Rest, provider: Provider) -> None:
    provider.userinfo = {"sub": "1", "groups": ["root"], "email": "ann@example.org"}
    assert (await _come_back(console, provider)).status_code == 303
    assert await _role(console) == (200, "admin")
    provider.userinfo = {"sub": "2", "groups": ["root"]}
    assert (await _come_back(console, provider)).status_code == 401


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": ["others"]},
        {"groups": ["staff"], "nonce": "of another sign-in"},
        {"groups": ["staff"], "aud": "another client"},
        {"groups": ["staff"], "iss": "https://elsewhere.example"},
        {"groups": ["staff"], "exp": time.time() - 3600},
        {"groups": ["staff"], "azp": "another client"},
    ],
)
async def test_a_token_that_is_not_for_this_sign_in_is_refused(
    console: Rest, provider: Provider, claims: dict[str, Any]
) -> None:
    provider.claims = claims
    assert (await _come_back(console, provider)).status_code == 401
    assert (await _role(console))[0] == 401


async def test_a_state_is_good_once_and_in_one_browser(console: Rest, provider: Provider) -> None:
    provider.claims = {"groups": ["staff"]}
    assert (await _come_back(console, provider, state="x")).status_code == 401
    assert (await _come_back(console, provider, error="access_denied")).status_code == 401
    assert (await _come_back(console, provider, code="guessed")).status_code == 401
    begun = await console.client.get("/login/oidc")
    parameters = provider.sign_in(begun.headers["location"])
    stranger = await console.anonymous().get("/login/oidc/callback", params=parameters)
    assert stranger.status_code == 401
    again = await console.client.get("/login/oidc/callback", params=parameters)
    assert again.status_code == 401


async def test_an_unreachable_provider_is_said_on_the_form(tmp_path: Path) -> None:
    oidc = OidcConfig(issuer="http://127.0.0.1:1", client_id="console")
    async with rest("127.0.0.1:1", tmp_path, oidc=oidc, history_mib=0) as running:
        answer = await running.client.get("/login/oidc")
    assert answer.status_code == 502
    assert "cannot be used" in answer.text


def test_settings_are_checked() -> None:
    assert parse_roles([]) == ((Role.VIEWER, "*"),)
    for wrong in (["root=x"], ["admin"], ["admin="]):
        with pytest.raises(InvalidRequestError):
            parse_roles(wrong)
    for issuer in ("http://example.org", "ftp://127.0.0.1", ""):
        with pytest.raises(InvalidRequestError, match="https"):
            OidcConfig(issuer=issuer, client_id="x")
    everybody = OidcConfig(issuer="https://a.example", client_id="x")
    assert everybody.role_of({}) is Role.VIEWER
    assert OidcConfig(issuer="https://a.example", client_id="x", roles=()).role_of({}) is None
