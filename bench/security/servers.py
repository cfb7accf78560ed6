"""Servers with access control and TLS, with the same user, rule and certificate in both systems."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from bench.server.systems import ORBITMQ, start_apache_with, start_orbitmq
from orbitmq.admin import AdminClient
from orbitmq.cli.server.certificates import server_certificate
from orbitmq.protocol.bodies import PolicyEntryInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.server.systems import Server
    from orbitmq.cli.server.certificates import Files

USER, PASSWORD = "loader", "the-loaders-password"
_ADMIN, _ADMIN_PASSWORD = "root", "the-admins-password"
_PROVIDERS = "org.apache.rocketmq.auth"
# What the run itself asks a broker without a signature: settings, topics, routes, the cluster.
_UNSIGNED = "17,26,105,106"
_ACCESS_CONTROL = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": f"{_PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{_ADMIN}","password":"{_ADMIN_PASSWORD}"}}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"the-brokers-password"}',
    "authenticationWhitelist": _UNSIGNED,
    "authorizationWhitelist": _UNSIGNED,
}


@contextlib.contextmanager
def started(system: str, home: Path, topics: Sequence[str], *, has_users: bool) -> Iterator[Server]:
    """A server that serves clear and encrypted connections; with users, one of them may send to these topics."""
    files = server_certificate(home, ["127.0.0.1"])
    settings = dict(_ACCESS_CONTROL) if has_users else {}
    start = _orbitmq if system == ORBITMQ else _apache
    with start(home, settings, files) as server:
        for topic in topics:
            server.make_topic(topic)
        if has_users:
            asyncio.run(_let_load(server.nameserver, topics))
        yield server


def _orbitmq(home: Path, settings: Mapping[str, str], files: Files) -> Server:
    tls = {"tls.server.certPath": str(files.certificate), "tls.server.keyPath": str(files.key)}
    return start_orbitmq(home, {**settings, **tls})


def _apache(home: Path, settings: Mapping[str, str], files: Files) -> Server:
    properties = home / "tls.properties"
    properties.write_text(
        "tls.test.mode.enable=false\n"
        f"tls.server.certPath={files.certificate}\n"
        f"tls.server.keyPath={files.key}\n"
        "tls.server.need.client.auth=none\n",
        "utf-8",
    )
    return start_apache_with(("-Dtls.server.mode=permissive", f"-Dtls.config.file={properties}"), home, settings)


async def _let_load(nameserver: str, topics: Sequence[str]) -> None:
    """Make the user of the load, who may send to the topics."""
    async with AdminClient(nameserver, access_key=_ADMIN, secret_key=_ADMIN_PASSWORD) as admin:
        await admin.access.create_user(USER, PASSWORD)
        entries = [PolicyEntryInfo(f"Topic:{topic}", ["Pub"], None, "Allow") for topic in topics]
        await admin.access.create_rules(f"User:{USER}", entries)
