"""RocketMQ's TLS settings: those of a server, and those of the connections that it opens itself."""

from __future__ import annotations

import dataclasses
import ssl
from typing import TYPE_CHECKING

from orbitmq.platform.properties_file import read_conf
from orbitmq.platform.settings import ConfigError, setting
from orbitmq.remoting.errors import TlsConfigError
from orbitmq.remoting.tls.context import ClientTls, ServerTls, TlsMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.platform.disk import Disk

CONFIG_FILE = "tls.config.file"

_CLIENT_AUTH = {
    "": ssl.CERT_NONE,
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class TlsSettings:
    """TLS, with the keys of RocketMQ's ``tls.properties``. Listed only if an operator changed them."""

    tls_server_mode: str = setting("", key="tls.server.mode", optional=True)
    """``disabled``, ``permissive`` (both) or ``enforcing``. By default permissive, which needs a certificate."""
    tls_server_cert_path: str = setting("", key="tls.server.certPath", optional=True)
    """PEM file. It is read again when it changes, as all of these files."""
    tls_server_key_path: str = setting("", key="tls.server.keyPath", optional=True)
    tls_server_key_password: str = setting("", key="tls.server.keyPassword", optional=True, secret=True)
    tls_server_trust_cert_path: str = setting("", key="tls.server.trustCertPath", optional=True)
    """Authorities of client certificates."""
    tls_server_need_client_auth: str = setting("", key="tls.server.need.client.auth", optional=True)
    """``none``, ``optional`` or ``require``."""
    tls_server_auth_client: bool = setting(False, key="tls.server.authClient", optional=True)
    """Require client certificates, as ``tls.server.need.client.auth=require``."""
    tls_enable: bool = setting(False, key="tls.enable", optional=True)
    """Use TLS for own connections, to name servers and to other brokers."""
    tls_client_cert_path: str = setting("", key="tls.client.certPath", optional=True)
    tls_client_key_path: str = setting("", key="tls.client.keyPath", optional=True)
    tls_client_key_password: str = setting("", key="tls.client.keyPassword", optional=True, secret=True)
    tls_client_trust_cert_path: str = setting("", key="tls.client.trustCertPath", optional=True)
    """Authorities of server certificates; those of the system if empty."""
    tls_client_auth_server: bool = setting(True, key="tls.client.authServer", optional=True)
    """Verify certificates and names of servers. RocketMQ does not by default."""
    tls_config_file: str = setting("", key=CONFIG_FILE, optional=True)
    """Properties file with these settings, for those that are not given elsewhere."""
    tls_test_mode_enable: bool = setting(False, key="tls.test.mode.enable", optional=True)

    def check_tls(self) -> None:
        """Check what types cannot express. Raises ConfigError."""
        if self.tls_server_mode and self.tls_server_mode not in [mode.value for mode in TlsMode]:
            raise ConfigError(
                f"tls.server.mode={self.tls_server_mode}: disabled, permissive or enforcing is expected"
            )
        if self.tls_server_mode == TlsMode.ENFORCING.value and not self.tls_server_cert_path:
            raise ConfigError("tls.server.mode=enforcing needs a certificate: set tls.server.certPath")
        if self.tls_server_need_client_auth not in _CLIENT_AUTH:
            text = self.tls_server_need_client_auth
            raise ConfigError(f"tls.server.need.client.auth={text}: none, optional or require is expected")
        if self._client_auth is not ssl.CERT_NONE and not self.tls_server_trust_cert_path:
            raise ConfigError("client certificates need their authorities: set tls.server.trustCertPath")
        if self.tls_test_mode_enable:
            raise ConfigError(
                "tls.test.mode.enable=true: certificates for tests are not made here; give false, or run "
                "orbitmq serve --secure"
            )

    @property
    def _client_auth(self) -> ssl.VerifyMode:
        return ssl.CERT_REQUIRED if self.tls_server_auth_client else _CLIENT_AUTH[self.tls_server_need_client_auth]

    @property
    def server_tls(self) -> ServerTls:
        """TLS of the ports of this server."""
        return ServerTls(
            mode=TlsMode(self.tls_server_mode) if self.tls_server_mode else TlsMode.PERMISSIVE,
            certificate_path=self.tls_server_cert_path,
            key_path=self.tls_server_key_path,
            key_password=self.tls_server_key_password,
            trusted_path=self.tls_server_trust_cert_path,
            client_auth=self._client_auth,
        )

    @property
    def client_tls(self) -> ClientTls | None:
        """TLS of own connections; None for clear text."""
        if not self.tls_enable and not getattr(self, "use_tls", False):
            return None
        return ClientTls(
            verify_server=self.tls_client_auth_server,
            trusted_path=self.tls_client_trust_cert_path,
            certificate_path=self.tls_client_cert_path,
            key_path=self.tls_client_key_path,
            key_password=self.tls_client_key_password,
        )

    def check_certificates(self) -> None:
        """Read the files once, before a server starts. Raises ConfigError."""
        try:
            if self.tls_server_cert_path and self.tls_server_mode != TlsMode.DISABLED.value:
                self.server_tls.context()
            if (tls := self.client_tls) is not None:
                tls.context()
        except TlsConfigError as error:
            raise ConfigError(str(error)) from None


def with_tls_file(disk: Disk, texts: Mapping[str, str]) -> dict[str, str]:
    """Settings with those of ``tls.config.file`` behind them. Raises ConfigError, DiskFaultError."""
    path = texts.get(CONFIG_FILE, "")
    found = read_conf(disk, path) if path else {}
    return {**{key: text for key, text in found.items() if key.startswith("tls.")}, **texts}
