"""Bundle: the state of a cluster as files, for a bug report. Secrets and message bodies are left out."""

from __future__ import annotations

import dataclasses
import io
import platform
import tarfile
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq import __version__
from orbitmq.admin.errors import AdminError, ClientOfflineError
from orbitmq.admin.health.redaction import redacted
from orbitmq.admin.topic.model import TopicKind
from orbitmq.protocol.bodies import Body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.admin.client import AdminClient

MAX_EVENTS = 1000
MAX_GROUPS = 200
"""Groups whose members are described: it takes a request per group and broker, and one per member."""


@dataclasses.dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle."""

    name: str
    content: bytes


async def collect(admin: AdminClient, *, cluster: str = "", created_ms: int | None = None) -> list[BundleFile]:
    """The files of a bundle. What cannot be read is a line of ``errors.txt``, and does not stop the rest.

    Raises AdminError if no name server responds.
    """
    made = admin.config.clock.now_ms() if created_ms is None else created_ms
    topology = await admin.brokers.topology()
    about = {"createdMs": made, "orbitmq": __version__, "python": platform.python_version(), "cluster": cluster}
    files = [_file("about.json", about), _file("topology.json", topology)]
    errors: list[str] = []

    async def add(name: str, read: Callable[[], Awaitable[Any]]) -> None:
        try:
            files.append(_file(name, await read()))
        except AdminError as error:
            errors.append(f"{name}: {error}")

    await add("health.json", lambda: admin.health.check(cluster=cluster))
    await add("topics.json", lambda: admin.topics.all(cluster=cluster, kinds=tuple(TopicKind)))
    await add("groups.json", lambda: admin.groups.all(cluster=cluster, with_system=True, with_lag=True))
    await add("dead-letters.json", lambda: admin.dead_letters.all(cluster=cluster))
    await add("deferred.json", lambda: admin.deferred.counts(cluster=cluster))
    await add("producers.json", lambda: admin.members.all_producers(cluster=cluster))
    await add("events.json", lambda: admin.events.read(cluster=cluster, limit=MAX_EVENTS))
    for address in admin.config.name_servers:
        await add(f"nameservers/{_safe(address)}.json", partial(_settings, admin.name_servers, address))
    for broker in topology.of_cluster(cluster):
        folder, at = f"brokers/{_safe(broker.broker_name)}-{broker.broker_id}", broker.address
        await add(f"{folder}/settings.json", partial(_settings, admin.brokers, at))
        await add(f"{folder}/runtime.json", partial(admin.brokers.runtime, at))
        await add(f"{folder}/replication.json", partial(admin.brokers.replication, at))
    for group in await _groups(admin, cluster):
        await add(f"groups/{_safe(group)}.json", partial(_members, admin, group))
    if errors:
        files.append(BundleFile("errors.txt", "".join(f"{line}\n" for line in errors).encode()))
    return files


async def _groups(admin: AdminClient, cluster: str) -> list[str]:
    try:
        found = await admin.groups.all(cluster=cluster, with_lag=True)
    except AdminError:
        return []
    return [one.name for one in sorted(found, key=lambda one: -(one.lag or 0))[:MAX_GROUPS]]


async def _members(admin: AdminClient, group: str) -> dict[str, Any]:
    """The members of a group and their subscriptions; its settings and lag are in ``groups.json``."""
    try:
        connections = await admin.members.connections(group)
    except ClientOfflineError:
        return {"online": False}
    return {
        "online": True,
        "members": connections,
        "check": await admin.members.check_subscriptions(group, connections),
    }


async def _settings(subject: Any, address: str) -> dict[str, str]:
    return redacted(await subject.settings(address))


def archive(files: list[BundleFile], *, folder: str, modified_ms: int) -> bytes:
    """The files as a ``tar.gz``, in one folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for file in files:
            entry = tarfile.TarInfo(f"{folder}/{file.name}")
            entry.size, entry.mtime, entry.mode = len(file.content), modified_ms // 1000, 0o600
            tar.addfile(entry, io.BytesIO(file.content))
    return out.getvalue()


def _file(name: str, value: Any) -> BundleFile:
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS
    return BundleFile(name, orjson.dumps(value, default=_plain, option=options) + b"\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Body):
        return value.to_json()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def _safe(name: str) -> str:
    """A name as part of a path."""
    return "".join(char if char.isalnum() or char in "-_.%" else "_" for char in name).lstrip(".") or "_"
