"""``orbitmq serve --secure``: certificates, an administrator and the settings that use them."""

import dataclasses
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ADMINISTRATOR = "admin"
INNER_USER = "orbitmq-inner"


@dataclasses.dataclass(frozen=True)
class Security:
    """Settings and files with which a secure cluster starts."""

    settings: dict[str, str]
    authority: Path
    """The certificate that clients trust."""
    new_secret: str | None = dataclasses.field(repr=False)
    """The secret of the administrator at the first start; None afterwards."""

    def lines(self) -> list[str]:
        """Settings that a client needs, for the start-up message."""
        shown = "the one of the first start" if self.new_secret is None else self.new_secret
        lines = ["", "access control and TLS are on; clients need"]
        if self.new_secret is not None:
            lines[1] += " (the secret is not shown again)"
        return [
            *lines,
            f"  export ORBITMQ_ACCESS_KEY={ADMINISTRATOR}",
            f"  export ORBITMQ_SECRET_KEY={shown if self.new_secret else '...  # ' + shown}",
            f"  export ORBITMQ_TLS_CA={self.authority}",
            "  java -Dtls.enable=true -Dtls.client.authServer=true "
            f"-Dtls.client.trustCertPath={self.authority} ...  # with an AclClientRPCHook of these keys",
        ]


def make_secure(directory: Path, users_file: Path, names: "Iterable[str]") -> Security:
    """Certificates and credentials in a directory, made where they are missing. Raises ConfigError."""
    from orbitmq.cli.server.certificates import server_certificate  # noqa: PLC0415  # needs cryptography
    from orbitmq.platform.settings import ConfigError  # noqa: PLC0415

    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        files = server_certificate(directory, names)
        inner = _inner_credentials(directory / "inner.json")
    except OSError as error:
        raise ConfigError(f"--secure: cannot write {directory}: {error.strerror or error}") from error
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "innerClientAuthenticationCredentials": inner,
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(files.certificate),
        "tls.server.keyPath": str(files.key),
        "tls.enable": "true",
        "tls.client.trustCertPath": str(files.authority),
    }
    secret = None
    if not users_file.exists():
        secret = secrets.token_urlsafe(24)
        settings["initAuthenticationUser"] = json.dumps({"username": ADMINISTRATOR, "password": secret})
    return Security(settings, files.authority, secret)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)


def _inner_credentials(path: Path) -> str:
    """The credentials with which the broker signs its own requests."""
    if not path.exists():
        text = json.dumps({"accessKey": INNER_USER, "secretKey": secrets.token_urlsafe(32)})
        write_private(path, text.encode())
    return path.read_text()
