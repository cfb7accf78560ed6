"""Settings of access control, with RocketMQ's keys. Brokers and name servers share them."""

from __future__ import annotations

import dataclasses
from typing import Any

from orbitmq.auth.credentials import CredentialsError, credentials_of_json
from orbitmq.auth.local_only import networks_of
from orbitmq.platform.settings import ConfigError, setting
from orbitmq.remoting.config import RemotingSettings

_APACHE = "org.apache.rocketmq."


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class AuthSettings(RemotingSettings):
    """Authentication and authorization. They take effect at start; listed only if an operator changed them."""

    authentication_enabled: bool = setting(False, optional=True)
    authorization_enabled: bool = setting(False, optional=True)
    authentication_whitelist: str = setting("", optional=True)
    """Request codes, separated by commas, that need no signature."""
    authorization_whitelist: str = setting("", optional=True)
    """Request codes, separated by commas, that need no rule."""
    init_authentication_user: str = setting("", optional=True, secret=True)
    """``{"username":"…","password":"…"}`` of a super user who is created unless there is a user of that name."""
    inner_client_authentication_credentials: str = setting("", optional=True, secret=True)
    """``{"accessKey":"…","secretKey":"…"}`` with which this server signs its own requests; created as
    super user."""
    migrate_auth_from_v1_enabled: bool = setting(False, optional=True)
    """Import the users of ``plain_acl.yml`` that do not exist yet."""
    auth_key_file: str = setting("", optional=True)
    """File with the key that encrypts the passwords; by default ``auth.key`` above ``config/``."""
    admin_networks: str = setting("", optional=True)
    """Addresses or CIDR blocks, separated by commas, whose administrative requests are accepted while
    authentication is off, besides those of this machine; ``*`` is everywhere."""
    audit_log: bool = setting(True, optional=True)
    """Record administrative requests and refusals in ``config/audit.jsonl``."""
    audit_log_bytes: int = setting(8 << 20, optional=True)
    """Size at which the audit log is rotated. Four rotated files are kept."""

    max_requests_per_second_of_user: int = setting(0, optional=True)
    """Requests per second of one user who is not a super user; 0: any number."""

    # Without effect: there is one provider, and its strategy checks every request.
    authentication_provider: str = setting("", optional=True)
    authorization_provider: str = setting("", optional=True)
    authentication_metadata_provider: str = setting("", optional=True)
    authorization_metadata_provider: str = setting("", optional=True)
    authentication_strategy: str = setting("", optional=True)
    authorization_strategy: str = setting("", optional=True)

    def check_auth(self) -> None:
        """Check what types cannot express. Raises ConfigError."""
        if getattr(self, "acl_enable", False) and self.authentication_enabled:
            raise ConfigError("aclEnable=true and authenticationEnabled=true: give one of the two access controls")
        if self.authorization_enabled and not self.authentication_enabled:
            # RocketMQ would then trust the access key that a client merely names.
            raise ConfigError(
                "authorizationEnabled=true needs authenticationEnabled=true: without it users are unknown"
            )
        for key, text in (
            ("initAuthenticationUser", self.init_authentication_user),
            ("innerClientAuthenticationCredentials", self.inner_client_authentication_credentials),
        ):
            if text:
                try:
                    credentials_of_json(text, key)
                except CredentialsError as error:
                    raise ConfigError(str(error)) from None
        for key, text in (
            ("authenticationWhitelist", self.authentication_whitelist),
            ("authorizationWhitelist", self.authorization_whitelist),
        ):
            codes_of(key, text)
        for key, field in _PROVIDERS.items():
            name = str(getattr(self, field))
            if name and not name.startswith(_APACHE):
                raise ConfigError(f"{key}: own providers cannot be plugged in; leave it out")
        try:
            networks_of(self.admin_networks)
        except ValueError as error:
            raise ConfigError(f"adminNetworks: {error}; give addresses or CIDR blocks, separated by ','") from None
        if self.max_requests_per_second_of_user < 0:
            raise ConfigError(
                f"maxRequestsPerSecondOfUser={self.max_requests_per_second_of_user}: give 0 (any number) or more"
            )
        if self.audit_log_bytes < 4096:
            raise ConfigError(f"auditLogBytes={self.audit_log_bytes}: give at least 4096")


def server_values(settings: AuthSettings) -> dict[str, Any]:
    """The values of these settings by field, TLS and limits included, for another server of the same process."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(AuthSettings)}


_PROVIDERS = {
    "authenticationProvider": "authentication_provider",
    "authorizationProvider": "authorization_provider",
    "authenticationMetadataProvider": "authentication_metadata_provider",
    "authorizationMetadataProvider": "authorization_metadata_provider",
    "authenticationStrategy": "authentication_strategy",
    "authorizationStrategy": "authorization_strategy",
}

AUTH_KEYS = frozenset(
    (
        *_PROVIDERS,
        *("authenticationEnabled", "authorizationEnabled", "authenticationWhitelist", "authorizationWhitelist"),
        *("initAuthenticationUser", "innerClientAuthenticationCredentials", "migrateAuthFromV1Enabled"),
        *("authKeyFile", "adminNetworks", "auditLog", "auditLogBytes", "aclEnable"),
        *("haAuthenticationEnabled", "haTlsEnable", "metricsPromExporterTls"),
    )
)
"""The keys of access control. Nobody may change them over the network."""


def codes_of(key: str, text: str) -> frozenset[int]:
    """The request codes of a white list. Names of gRPC messages are left out. Raises ConfigError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not (part.isascii() and part.isdigit()) and "." not in part:
            raise ConfigError(f"{key} has {part!r}: request codes or names of gRPC messages are expected")
    return frozenset(int(part) for part in parts if "." not in part)
