"""What the console refuses: without a session, from other sites, with too low a role, in read-only mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.dashboard.auth import passwords
from orbitmq.dashboard.auth.roles import Role
from support.dashboard.rest_client import PASSWORD, rest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.dashboard.demo_cluster import DemoCluster
    from support.dashboard.rest_client import Rest

TOPICS = "/api/v1/clusters/demo/topics"
NEW = {"name": "made-by-rest", "read_queues": 1, "write_queues": 1}


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "N", 2)


@pytest.fixture
async def api(demo: DemoCluster, tmp_path: Path) -> AsyncIterator[Rest]:
    async with rest(demo.name_server, tmp_path) as running:
        yield running


async def test_nothing_but_the_sign_in_is_there_without_a_session(api: Rest) -> None:
    paths = ["/api/v1/clusters", TOPICS, "/api/v1/openapi.json", "/api/v1/session/x", "/_nicegui/x", "/c/demo/x"]
    for path in paths:
        assert (await api.client.get(path, headers={"accept": "application/json"})).status_code == 401, path
    page = await api.client.get("/c/demo/overview", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=/c/demo/overview")
    form = await api.client.get("/login?next=//evil.example/")
    assert form.status_code == 200
    assert 'value="/"' in form.text
    assert "evil" not in form.text


async def test_a_wrong_password_is_refused_and_in_the_audit_log(api: Rest) -> None:
    answer = await api.client.post("/api/v1/session", json={"user": "<b>eve</b>", "password": "guess"})
    assert (answer.status_code, answer.json()["error"]) == (401, "not_signed_in")
    form = await api.client.post("/login", data={"user": "eve", "password": "<script>", "next": "/"})
    assert form.status_code == 401
    assert "<script>" not in form.text
    assert [entry.user for entry in api.console.audit.entries()] == ["eve", "<b>eve</b>"]


async def test_a_cookie_alone_does_not_permit_a_change(api: Rest) -> None:
    await api.console.users.put("ann", Role.ADMIN, PASSWORD)
    signed_in = await api.client.post("/login", data={"user": "ann", "password": PASSWORD, "next": "/c/demo"})
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/c/demo")
    cookie = signed_in.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert (await api.client.get("/api/v1/clusters")).json()[0]["name"] == "demo"
    assert (await api.client.post(TOPICS, json=NEW)).status_code == 403
    assert (await api.client.post(TOPICS, json=NEW, headers={"x-csrf-token": "guess"})).status_code == 403
    csrf = (await api.client.get("/api/v1/session")).json()["csrf"]
    headers = {"x-csrf-token": csrf}
    answer = await api.client.post(f"{TOPICS}?dry_run=true", json=NEW, headers=headers)
    assert answer.status_code == 201
    foreign = {**headers, "origin": "http://evil.example"}
    assert (await api.client.post(TOPICS, json=NEW, headers=foreign)).status_code == 403
    assert (await api.client.delete("/api/v1/session", headers=headers)).status_code == 204
    assert (await api.client.get("/api/v1/clusters")).status_code == 401


async def test_a_name_that_is_not_the_consoles_is_refused(api: Rest) -> None:
    answer = await api.client.get("/login", headers={"host": "rebound.evil.example"})
    assert (answer.status_code, answer.json()["error"]) == (421, "unknown_host")
    assert (await api.client.get("/login", headers={"host": "localhost:8280"})).status_code == 200


async def test_headers_forbid_framing_sniffing_and_other_hosts(api: Rest) -> None:
    headers = (await api.client.get("/login")).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "http" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


async def test_a_body_over_the_limit_is_refused(api: Rest) -> None:
    answer = await api.client.post("/api/v1/session", content=b"x" * (17 << 10))
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    admin = await api.sign_in(Role.ADMIN)
    answer = await admin.post(f"{TOPICS}/orders/messages", content=b"x" * (9 << 20))
    assert answer.status_code == 413


async def test_each_role_may_do_what_it_says(api: Rest) -> None:
    viewer, operator = await api.sign_in(Role.VIEWER), await api.sign_in(Role.OPERATOR)
    assert (await viewer.get(TOPICS)).status_code == 200
    refused = await viewer.post(TOPICS, json=NEW)
    assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
    assert (await viewer.get("/api/v1/audit")).status_code == 403
    assert (await operator.get("/api/v1/audit")).status_code == 200
    assert (await operator.delete(f"{TOPICS}/orders")).status_code == 403
    assert (await operator.get("/api/v1/users")).status_code == 403
    broker = "/api/v1/clusters/demo/brokers/broker-a/settings"
    assert (await operator.patch(broker, json={"values": {"a": "b"}})).status_code == 403
    assert (
        await operator.put("/api/v1/users/eve", json={"role": "admin", "password": PASSWORD})
    ).status_code == 403
    results = [(entry.action, entry.result != "ok") for entry in api.console.audit.entries()]
    assert ("delete topic", True) in results
    assert ("create topic", True) in results


async def test_administrators_manage_users(api: Rest) -> None:
    admin = await api.sign_in(Role.ADMIN)
    assert (await admin.put("/api/v1/users/bob", json={"role": "viewer", "password": PASSWORD})).status_code == 204
    assert [user["name"] for user in (await admin.get("/api/v1/users")).json()] == ["admin", "bob"]
    signed_in = await api.anonymous().post("/api/v1/session", json={"user": "bob", "password": PASSWORD})
    bob = api.as_bearer(signed_in.json()["token"])
    wrong = await bob.post("/api/v1/password", json={"old": "guess", "new": "another one"})
    assert wrong.status_code == 401
    changed = await bob.post("/api/v1/password", json={"old": PASSWORD, "new": "another one"})
    assert changed.status_code == 204
    assert (await bob.get("/api/v1/clusters")).status_code == 401
    assert (await admin.delete("/api/v1/users/bob")).status_code == 204
    assert (await admin.delete("/api/v1/users/admin")).json()["error"] == "invalid_request"


async def test_read_only_mode_refuses_every_change(demo: DemoCluster, tmp_path: Path) -> None:
    async with rest(demo.name_server, tmp_path, read_only=True) as api:
        admin = await api.sign_in(Role.ADMIN)
        for answer in (
            await admin.post(TOPICS, json=NEW),
            await admin.delete(f"{TOPICS}/orders"),
            await admin.post(f"{TOPICS}/orders/messages", json={"body": "x"}),
            await admin.post("/api/v1/clusters/demo/dead-letters/refunds/resend", json={}),
        ):
            assert answer.status_code == 403
            assert "read-only" in answer.json()["message"]
        assert (await admin.get(TOPICS)).status_code == 200


async def test_without_login_a_form_of_another_site_changes_nothing(demo: DemoCluster, tmp_path: Path) -> None:
    async with rest(demo.name_server, tmp_path, login=False) as api:
        assert (await api.client.get("/api/v1/session")).json()["role"] == "admin"
        assert (await api.client.post(TOPICS, json=NEW)).status_code == 403
        allowed = await api.client.post(f"{TOPICS}?dry_run=true", json=NEW, headers={"x-csrf-token": "local"})
        assert allowed.status_code == 201


async def test_no_request_reaches_a_host_that_is_not_of_the_cluster(api: Rest) -> None:
    viewer = await api.sign_in(Role.VIEWER)
    other = "127.0.0.1:22"
    for path in (
        f"/api/v1/clusters/demo/brokers/{other}/settings",
        f"/api/v1/clusters/demo/brokers/{other}/runtime",
        f"/api/v1/clusters/demo/name-servers/settings?address={other}",
        # The id of a message that a broker at 127.0.0.1:22 would have made.
        f"{TOPICS}/orders/messages/7F000001000000160000000000000000",
    ):
        assert (await viewer.get(path)).status_code == 404, path
