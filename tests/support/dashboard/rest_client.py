"""The REST interface of a console in the test's process, behind its guard, and a signed-in client of it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import httpx

from orbitmq.dashboard.config import ClusterTarget, DashboardConfig
from orbitmq.dashboard.console import Console
from orbitmq.dashboard.rest.app import make_app
from orbitmq.dashboard.rest.guard import Guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from orbitmq.dashboard.auth.roles import Role

HOST = "http://127.0.0.1:8280"
PASSWORD = "correct horse"


@dataclasses.dataclass
class Rest:
    """The console, and a client without a session."""

    console: Console
    client: httpx.AsyncClient

    async def sign_in(self, role: Role) -> httpx.AsyncClient:
        """A client of a user with a role, which sends its session's token."""
        await self.console.users.put(role.value, role, PASSWORD)
        answer = await self.client.post("/api/v1/session", json={"user": role.value, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        return self.as_bearer(answer.json()["token"])

    def as_bearer(self, token: str) -> httpx.AsyncClient:
        client = self.anonymous()
        client.headers["authorization"] = f"Bearer {token}"
        return client

    def anonymous(self) -> httpx.AsyncClient:
        """A client without cookies."""
        return httpx.AsyncClient(transport=self.client._transport, base_url=HOST)


@contextlib.asynccontextmanager
async def rest(name_server: str, directory: Path, **options: Any) -> AsyncIterator[Rest]:
    """A console of the cluster ``demo``, without pages."""
    config = DashboardConfig(
        targets=(ClusterTarget("demo", name_server),),
        data=str(directory / "console"),
        **{"history_mib": 1, **options},
    )
    console = Console(config)
    await console.start()
    try:
        transport = httpx.ASGITransport(Guard(make_app(console), console), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            yield Rest(console, client)
    finally:
        await console.close()
