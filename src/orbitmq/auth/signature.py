"""Signatures of requests as RocketMQ's clients make them: HMAC-SHA1 over the header's values and the body."""

from __future__ import annotations

import binascii
import hmac
from typing import TYPE_CHECKING

from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.protocol.versions import version_ordinal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.auth.credentials import Credentials

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  # the name of a header field

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_LAST_WITH_UNSIGNED_QUERY = version_ordinal(4, 9, 3)
"""Clients up to 4.9.3 add ``_UNIQUE_KEY_QUERY`` to a request after they have signed it."""


def signed_content(fields: Mapping[str, str], body: bytes | None, version: int | None = None) -> bytes:
    """The bytes that are signed: the values in the order of their names, then the body."""
    skipped: tuple[str, ...] = (SIGNATURE,)
    if version is not None and version <= _LAST_WITH_UNSIGNED_QUERY:
        skipped = (SIGNATURE, _UNIQUE_KEY_QUERY)
    content = "".join([fields[name] for name in sorted(fields) if name not in skipped]).encode("utf-8", "replace")
    return content + body if body else content


def signature_of(secret: bytes, content: bytes) -> bytes:
    """The signature in Base64."""
    return binascii.b2a_base64(hmac.digest(secret, content, "sha1"), newline=False)


def is_signed_by(secret: bytes, fields: Mapping[str, str], body: bytes | None, version: int | None = None) -> bool:
    """True if a request has the signature of this secret. The comparison takes the same time for every answer."""
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    expected = signature_of(secret, signed_content(fields, body, version))
    return hmac.compare_digest(expected, given.encode("utf-8", "replace"))


class Signer:
    """Signs the requests of a client."""

    __slots__ = ("_access_key", "_secret", "_token")

    def __init__(self, credentials: Credentials) -> None:
        self._access_key = credentials.access_key
        self._secret = credentials.secret_key.encode()
        self._token = credentials.security_token

    def __repr__(self) -> str:
        return f"Signer({self._access_key!r})"

    def sign(self, command: Command) -> None:
        """Add the access key and the signature to a request."""
        fields = command.ext_fields
        fields[ACCESS_KEY] = self._access_key
        if self._token:
            fields[SECURITY_TOKEN] = self._token
        fields[SIGNATURE] = signature_of(self._secret, signed_content(fields, command.body)).decode()

    def sign_frames(self, frames: bytes) -> bytes:
        """Whole frames of requests, signed; for requests that are encoded without a ``Command``."""
        signed = []
        for frame in FrameParser().feed(frames):
            command = Command.decode(frame)
            self.sign(command)
            signed.append(command.encode())
        return b"".join(signed)
