"""Proof of identity on the HA connection: slave and master show each other that they know the secret of one user.

RocketMQ's HA connection has no handshake, so this one is OrbitMQ's (``haAuthenticationEnabled``):

1. slave: MAGIC
2. master: MAGIC, 32 random bytes
3. slave: length of the access key (1 byte), the key, 32 random bytes, HMAC-SHA256 over all of these with the secret
4. master: HMAC-SHA256 over the same with another label

MAGIC is a negative number where RocketMQ has the end of a log. The slave sends nothing else before the master has
answered it, so RocketMQ's master, which reads numbers only, never takes random bytes for an acknowledgement. The
slave proves itself first: a stranger gets nothing to guess a secret from.
"""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING

from orbitmq.store.replication.frames import FrameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.auth.credentials import Credentials

MAGIC = b"\xffOMQHA\x00\x01"
NONCE_BYTES = 32
PROOF_BYTES = 32

_SLAVE, _MASTER = b"orbitmq ha slave", b"orbitmq ha master"


class MasterProof:
    """The master's part."""

    def __init__(self, secret_of: Callable[[str], bytes | None]) -> None:
        """``secret_of`` has the secrets of the users who may copy the log; None for others."""
        self._secret_of = secret_of
        self._received = b""
        self._nonce = b""
        self.rest = b""
        """What came behind the handshake."""
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """Bytes to send to the slave. Raises FrameError if it is refused."""
        self._received += data
        if not self._nonce:
            if not MAGIC.startswith(self._received[: len(MAGIC)]):
                raise FrameError(
                    "it did not prove itself: haAuthenticationEnabled=true is needed there too, and RocketMQ's "
                    "slaves cannot do it"
                )
            if len(self._received) < len(MAGIC):
                return b""
            self._received = self._received[len(MAGIC) :]
            self._nonce = os.urandom(NONCE_BYTES)
            return MAGIC + self._nonce
        key_end = 1 + self._received[0] if self._received else 1
        size = key_end + NONCE_BYTES + PROOF_BYTES
        if len(self._received) < size:
            return b""
        key, nonce = self._received[1:key_end], self._received[key_end : key_end + NONCE_BYTES]
        given = self._received[size - PROOF_BYTES : size]
        self.rest = self._received[size:]
        name = key.decode("utf-8", "replace")
        secret = self._secret_of(name)
        # Of an unknown user as well, so that the time of the answer does not tell who exists.
        expected = _proof(secret or self._nonce, _SLAVE, self._nonce, key, nonce)
        if not hmac.compare_digest(given, expected) or secret is None:
            raise FrameError(f"its proof of User:{name[:64]!r} is wrong: not an enabled super user of this master")
        self.is_done = True
        return _proof(secret, _MASTER, self._nonce, key, nonce)


class SlaveProof:
    """The slave's part."""

    def __init__(self, credentials: Credentials) -> None:
        self._key = credentials.access_key.encode()
        if len(self._key) > 255:
            raise FrameError("the access key of innerClientAuthenticationCredentials has more than 255 bytes")
        self._secret = credentials.secret_key.encode()
        self._received = b""
        self._expected = b""
        self.rest = b""
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """Bytes to send to the master. Raises FrameError if it is another one than expected."""
        self._received += data
        if self._expected:
            if len(self._received) >= PROOF_BYTES:
                given, self.rest = self._received[:PROOF_BYTES], self._received[PROOF_BYTES:]
                if not hmac.compare_digest(given, self._expected):
                    raise FrameError("the master did not prove that it knows the secret of this slave's user")
                self.is_done = True
            return b""
        if not MAGIC.startswith(self._received[: len(MAGIC)]):
            raise FrameError("the peer does not answer haAuthenticationEnabled=true: it is not a master of OrbitMQ")
        if len(self._received) < len(MAGIC) + NONCE_BYTES:
            return b""
        of_master = self._received[len(MAGIC) :][:NONCE_BYTES]
        self._received = b""
        nonce = os.urandom(NONCE_BYTES)
        self._expected = _proof(self._secret, _MASTER, of_master, self._key, nonce)
        proof = _proof(self._secret, _SLAVE, of_master, self._key, nonce)
        return bytes([len(self._key)]) + self._key + nonce + proof


def _proof(secret: bytes, label: bytes, of_master: bytes, key: bytes, of_slave: bytes) -> bytes:
    # Every part but the key has a fixed length for its label, so no two inputs have the same bytes.
    return hmac.digest(secret, label + of_master + of_slave + key, "sha256")
