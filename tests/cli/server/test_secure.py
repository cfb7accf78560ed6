"""``orbitmq serve --secure``: certificates, an administrator, and clients with and without what they need."""

from __future__ import annotations

import asyncio
import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import Message
from orbitmq.admin import AdminClient, RefusedError, UnreachableError
from orbitmq.aio import Producer
from orbitmq.remoting import ClientTls
from support.cli.server_process import orbitmq

if TYPE_CHECKING:
    from pathlib import Path

SERVE = ("serve", "--secure", "--nameserver-port", 0, "--broker-port", 0, "--grpc-port", 0)


async def test_a_secure_cluster_serves_who_has_the_secret_and_the_certificate(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with orbitmq(tmp_path, *SERVE, "--data", data) as server:
        names = await server.says(r"name server +(\S+)")
        secret = await server.says(r"ORBITMQ_SECRET_KEY=(\S+)")
        tls = ClientTls(trusted_path=str(data / "security" / "ca.pem"))
        right: Any = {"access_key": "admin", "secret_key": secret, "tls": tls}
        async with AdminClient(names, **right) as admin:
            await admin.topics.create("orders")
            await admin.access.create_user("alice", "alices-secret")
        async with Producer(names, **right) as producer:
            await producer.send(Message("orders", b"1"))

        async with AdminClient(names, access_key="admin", secret_key="wrong", tls=tls) as admin:
            with pytest.raises(RefusedError, match="check signature failed"):
                await admin.topics.names()
        async with AdminClient(names, tls=tls) as admin:
            with pytest.raises(RefusedError, match="username cannot be null"):
                await admin.topics.names()
        async with AdminClient(names, access_key="admin", secret_key=secret) as admin:
            with pytest.raises(UnreachableError):
                await admin.topics.names()
        async with AdminClient(names, access_key="admin", secret_key=secret, tls=ClientTls()) as admin:
            with pytest.raises(UnreachableError, match="its certificate is not accepted"):
                await admin.topics.names()
        assert await server.stopped() == 0

    for name in ("security/ca.key", "security/server.key", "security/inner.json", "store/auth.key"):
        assert stat.S_IMODE((data / name).stat().st_mode) == 0o600, name
    users = (data / "store/config/auth.json").read_text()
    assert {user["username"] for user in json.loads(users)["users"]} == {"admin", "orbitmq-inner", "alice"}
    assert secret not in users
    assert "alices-secret" not in users
    assert secret not in server.errors

    async with orbitmq(tmp_path, *SERVE, "--data", data) as again:
        names = await again.says(r"name server +(\S+)")
        await again.says("(the one of the first start)")
        async with AdminClient(names, **right) as admin:
            # The name server is up before the broker has registered.
            async with asyncio.timeout(30):
                while "orders" not in await admin.topics.names():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert await again.stopped() == 0
