"""Settings of a proxy in front of a cluster, beside those of its gRPC server; keys are those of rmq-proxy.json."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import orjson

from orbitmq.auth.credentials import Credentials, CredentialsError, credentials_of_json
from orbitmq.platform.settings import ConfigError, Int64, Range, check_values, from_settings, parse_conf, setting
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.addresses import host_and_port

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES = {"metadata_refresh_millis": Range(100, 3_600_000), "metadata_expire_millis": Range(100, 86_400_000)}


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class ClusterConfig:
    """Where the cluster is, and for how long its routes, topics and groups are remembered."""

    namesrv_addr: str = ""
    rocket_mq_cluster_name: str = setting("", key="rocketMQClusterName")
    """Cluster whose groups count. Empty: all that the name servers know. Apache's default is DefaultCluster."""

    inner_client_authentication_credentials: str = ""
    """The user in whose name this server sends requests to brokers with access control, as JSON."""

    # Of OrbitMQ
    bind_address: str = setting("127.0.0.1", optional=True)
    metadata_refresh_millis: Int64 = setting(20_000, optional=True)
    metadata_expire_millis: Int64 = setting(300_000, optional=True)

    def __post_init__(self) -> None:
        check_values(self, RANGES)
        _ = self.credentials
        for address in self.name_servers:
            try:
                host_and_port(address)
            except ProtocolError as error:
                raise ConfigError(f"namesrvAddr: {error}") from None

    @property
    def credentials(self) -> Credentials | None:
        """Raises ConfigError."""
        key = "innerClientAuthenticationCredentials"
        text = self.inner_client_authentication_credentials
        try:
            return credentials_of_json(text, key) if text else None
        except CredentialsError as error:
            raise ConfigError(str(error)) from None

    @property
    def name_servers(self) -> list[str]:
        return [address.strip() for address in self.namesrv_addr.split(";") if address.strip()]

    @classmethod
    def of(cls, settings: Mapping[str, str], **overrides: str) -> tuple[ClusterConfig, list[str]]:
        """The settings, and the keys among these texts that are not of this class. Raises ConfigError."""
        return from_settings(cls, settings, **overrides)


def parse_proxy_settings(text: str) -> dict[str, str]:
    """The settings of a file as texts: ``rmq-proxy.json``, or lines of ``key=value``. Raises ConfigError."""
    if not text.lstrip().startswith("{"):
        return parse_conf(text)
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ConfigError(f"the file is no JSON object: {error}") from None
    return {
        key: value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in found.items()
        if value is not None
    }
