"""Certificates of ``orbitmq serve --secure``: an authority of this cluster, and what it signs for the servers."""

import dataclasses
import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orbitmq.cli.server.secure import write_private

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
RENEWED_DAYS = 30
"""A certificate that ends within this time is replaced at the next start."""


@dataclasses.dataclass(frozen=True)
class Files:
    """Paths of the files in PEM."""

    authority: Path
    certificate: Path
    key: Path


def server_certificate(directory: Path, names: Iterable[str]) -> Files:
    """The files of a server with these host names and addresses, made or renewed if necessary. Raises OSError."""
    files = Files(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    wanted = sorted({"localhost", "127.0.0.1", "::1", *names})
    authority_key_file = directory / "ca.key"
    if not files.authority.exists() or not authority_key_file.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(authority_key_file, _pem(key))
        write_private(files.authority, _authority(key).public_bytes(serialization.Encoding.PEM))
        files.authority.chmod(0o644)
        files.certificate.unlink(missing_ok=True)
    if not files.key.exists() or not _is_good(files.certificate, wanted):
        loaded = serialization.load_pem_private_key(authority_key_file.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(authority, loaded, key, wanted)
        write_private(files.key, _pem(key))
        write_private(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    return files


def _is_good(path: Path, names: list[str]) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    has = {str(one.value) for one in found}
    rest = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return has >= set(names) and rest.days >= RENEWED_DAYS


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "OrbitMQ cluster authority")])
    return (
        _begun(name, name, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _signed(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
    names: list[str],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "OrbitMQ server")])
    public = authority_key.public_key()
    return (
        _begun(subject, authority.subject, key.public_key(), SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
