"""Settings of the console."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.dashboard.auth.oidc import OidcConfig

DEFAULT_PORT = 8280
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_CLUSTERS = 64
MAX_PIPELINES = 64


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The name servers of one group of clusters, under the name that the console gives it."""

    name: str
    name_servers: str


@dataclasses.dataclass(frozen=True, slots=True)
class PipelineTarget:
    """An archive, or the checkpoint of a streaming query, under the name that the console gives it."""

    name: str
    place: str
    cluster: str
    """The cluster whose messages it has."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DashboardConfig:
    """Settings of one console."""

    targets: tuple[ClusterTarget, ...]
    data: str
    """Directory of users, audit log and history."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    login: bool = True
    """Without it, anyone who reaches the port is an administrator: for loopback only."""
    read_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Further names in the Host header, for a console behind a proxy."""
    secure_cookies: bool = False
    """Send cookies over HTTPS only: for a console behind a proxy with TLS."""
    tls_certificate: str = ""
    """PEM file: the console is served over HTTPS. Read again when it changes."""
    tls_key: str = ""
    oidc: OidcConfig | None = None
    """A provider at which users can sign in."""
    access_key: str = ""
    secret_key: str = dataclasses.field(default="", repr=False)
    decoders: str = ""
    """File with the rules for Avro and Protobuf bodies."""
    pipelines: tuple[PipelineTarget, ...] = ()
    history_mib: int = 64
    """Size of the history file; 0 turns the history off."""
    sample_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not self.login and self.host not in LOOPBACK:
            raise InvalidRequestError(
                f"a console without login listens on loopback only, not on {self.host}: leave out --no-login"
            )
        if self.oidc is not None and not self.login:
            raise InvalidRequestError("a console without login has nobody who signs in: leave out --no-login")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise InvalidRequestError(
                "give both a certificate and its key, --tls-cert and --tls-key, or none of them"
            )
        if bool(self.access_key) != bool(self.secret_key):
            raise InvalidRequestError("give both an access key and a secret key, or none of them")
        if not 0 <= self.history_mib <= 4096:
            raise InvalidRequestError(f"the history has 0 to 4096 MiB, not {self.history_mib}")
        if not self.sample_seconds >= 1:
            raise InvalidRequestError(f"samples are taken at most once a second, not every {self.sample_seconds} s")

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK


def parse_targets(texts: Iterable[str]) -> tuple[ClusterTarget, ...]:
    """Clusters from options: ``host:port;host:port``, or with a name before it, ``prod=host:port``.

    Raises InvalidRequestError.
    """
    found: dict[str, ClusterTarget] = {}
    for text in texts:
        name, is_named, servers = text.partition("=")
        if not is_named:
            name, servers = ("default" if "default" not in found else f"cluster-{len(found) + 1}"), text
        if not _NAME.fullmatch(name):
            raise InvalidRequestError(f"the name of a cluster has letters, digits and ._-, not {name!r}")
        if name in found:
            raise InvalidRequestError(f"the cluster {name!r} is given twice")
        if not servers.strip():
            raise InvalidRequestError(f"the cluster {name!r} has no name server")
        found[name] = ClusterTarget(name, servers.strip())
    if not 1 <= len(found) <= MAX_CLUSTERS:
        raise InvalidRequestError(f"a console shows 1 to {MAX_CLUSTERS} clusters, not {len(found)}")
    return tuple(found.values())


def parse_pipelines(texts: Iterable[str], targets: tuple[ClusterTarget, ...]) -> tuple[PipelineTarget, ...]:
    """Pipelines from options: ``NAME=DIR``, or ``CLUSTER/NAME=DIR`` with several clusters.

    Raises InvalidRequestError.
    """
    clusters = {target.name for target in targets}
    found: list[PipelineTarget] = []
    for text in texts:
        left, is_named, place = text.partition("=")
        cluster, is_given, name = left.rpartition("/")
        cluster = cluster if is_given else targets[0].name
        if not is_named or not place.strip() or not _NAME.fullmatch(name):
            raise InvalidRequestError(
                f"a pipeline is NAME=DIR, with letters, digits and ._- in its name, not {text!r}"
            )
        if cluster not in clusters:
            raise InvalidRequestError(f"the pipeline {name!r} is of an unknown cluster {cluster!r}")
        if any((one.name, one.cluster) == (name, cluster) for one in found):
            raise InvalidRequestError(f"the pipeline {name!r} is given twice")
        found.append(PipelineTarget(name, place.strip(), cluster))
    if len(found) > MAX_PIPELINES:
        raise InvalidRequestError(f"a console shows at most {MAX_PIPELINES} pipelines, not {len(found)}")
    return tuple(found)
