"""TLS settings and certificates, which are reloaded when their files change."""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
import ssl

from orbitmq.remoting.errors import TlsConfigError, one_sentence

log = logging.getLogger("orbitmq.remoting")


class TlsMode(enum.Enum):
    """TLS policy of a server (``tls.server.mode``): clear text only, both, or TLS only."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"

    @classmethod
    def of(cls, text: str) -> TlsMode:
        """The mode of a configuration; anything unknown is permissive, as for RocketMQ."""
        try:
            return cls(text)
        except ValueError:
            return cls.PERMISSIVE


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a server; the paths are of PEM files. Without a certificate no TLS connection is possible."""

    mode: TlsMode = TlsMode.PERMISSIVE
    certificate_path: str = ""
    key_path: str = ""
    key_password: str = ""
    trusted_path: str = ""
    """Authorities of client certificates; used with ``client_auth`` only."""
    client_auth: ssl.VerifyMode = ssl.CERT_NONE
    """Client certificates: ``CERT_NONE``, ``CERT_OPTIONAL`` or ``CERT_REQUIRED``."""

    def context(self) -> ssl.SSLContext:
        """Read the certificates. Raises TlsConfigError."""
        context = _context(ssl.PROTOCOL_TLS_SERVER)
        _load_own(context, self.certificate_path, self.key_path, self.key_password)
        if self.client_auth != ssl.CERT_NONE:
            _load_trusted(context, self.trusted_path)
            context.verify_mode = self.client_auth
        return context


@dataclasses.dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS of outgoing connections; the paths are of PEM files.

    The server is verified, and its certificate must name the host or IP address that the client connects to.
    RocketMQ's clients do neither by default.
    """

    verify_server: bool = True
    check_name: bool = True
    """With ``verify_server``: the certificate names the address. Without, any server of the authority will do."""
    trusted_path: str = ""
    """Authorities of server certificates; those of the system if empty."""
    certificate_path: str = ""
    key_path: str = ""
    key_password: str = ""

    def context(self) -> ssl.SSLContext:
        """Read the certificates. Raises TlsConfigError."""
        context = _context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if self.verify_server:
            _load_trusted(context, self.trusted_path)
            context.verify_mode = ssl.CERT_REQUIRED
            context.check_hostname = self.check_name
        if self.certificate_path:
            _load_own(context, self.certificate_path, self.key_path, self.key_password)
        return context


class ServerCertificates:
    """The certificates of a running server. New connections use the current files."""

    def __init__(self, tls: ServerTls) -> None:
        """Read the files, if any are configured. Raises TlsConfigError."""
        self.mode = tls.mode
        self._tls = tls
        self._paths = [path for path in (tls.certificate_path, tls.key_path, tls.trusted_path) if path]
        self._seen = self._look()
        wanted = tls.mode is not TlsMode.DISABLED and tls.certificate_path
        if not wanted and tls.mode is TlsMode.ENFORCING:
            raise TlsConfigError("TLS is enforced, but no certificate is configured: set tls.server.certPath")
        self._context = tls.context() if wanted else None

    def context(self) -> ssl.SSLContext | None:
        """The context for the next connection; None without a certificate."""
        if self._context is not None and self._look() != self._seen:
            self.reload()
        return self._context

    def reload(self) -> None:
        """Reload the files. If they cannot be used (half written, for example), the old ones stay in use."""
        if self._context is None:
            return
        self._seen = self._look()
        try:
            self._context = self._tls.context()
        except TlsConfigError as error:
            log.error("tls: certificate reload failed, the old ones stay in use: %s", error)
        else:
            log.info("tls: certificates reloaded from %s", ", ".join(self._paths))

    def _look(self) -> list[tuple[int, int, int] | None]:
        """Time, size and inode of each file, which identify its version."""
        seen: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                seen.append(None)
            else:
                seen.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return seen


def reloading_context(certificates: ServerCertificates) -> ssl.SSLContext:
    """A context for servers of other libraries, which take one at their start: handshakes use the current files."""
    context = certificates.context()
    if context is None:
        raise TlsConfigError("no certificate is configured")

    def use_current(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext) -> None:
        current = certificates.context()
        if current is not None:
            connection.context = current

    context.sni_callback = use_current
    return context


def _context(protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation lets a peer cause work at any time, and would make writes depend on reads.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _load_own(context: ssl.SSLContext, certificate: str, key: str, password: str) -> None:
    try:
        # Always with a password: without one OpenSSL prompts on the terminal.
        context.load_cert_chain(certificate, key or None, password)
    except (OSError, ValueError) as error:
        where = certificate if not key else f"{certificate} and {key}"
        raise TlsConfigError(f"cannot use certificate and key of {where}: {one_sentence(error)}") from error


def _load_trusted(context: ssl.SSLContext, path: str) -> None:
    try:
        if path:
            context.load_verify_locations(path)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise TlsConfigError(f"cannot use trusted certificates of {path}: {one_sentence(error)}") from error
