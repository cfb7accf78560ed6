"""Password hashes: scrypt, with a salt and its parameters in the text."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

N, R, P = 1 << 14, 8, 5
"""Cost: 16 MiB and about 0.2 s a check, as OWASP recommends for scrypt."""
MAX_MEMORY = 64 << 20
MIN_LENGTH = 8
MAX_LENGTH = 256


def hash_password(password: str) -> str:
    """The text to store. Takes a fifth of a second of processor time: call it in a thread."""
    salt = secrets.token_bytes(16)
    digest = _digest(password, salt, N, R, P)
    return f"scrypt${N}${R}${P}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def verify_password(password: str, stored: str) -> bool:
    """True if it is the password. Takes as long for a wrong one. False for a text that is no hash."""
    try:
        kind, n, r, p, salt, digest = stored.split("$")
        if kind != "scrypt":
            return False
        found = _digest(password, base64.b64decode(salt), int(n), int(r), int(p))
        return hmac.compare_digest(found, base64.b64decode(digest))
    except ValueError:
        return False


def random_password() -> str:
    return secrets.token_urlsafe(15)


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode()[:1024], salt=salt, n=n, r=r, p=p, maxmem=MAX_MEMORY, dklen=32)
