"""Secret box: encrypts the passwords of users for the table on disk, with a key in a file of its own.

A signature can only be checked with the password itself, so the table cannot hold hashes. Without the key file
``config/``, or a copy of it, gives no password; with both, or the memory of the server, it does.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from typing import TYPE_CHECKING

from orbitmq.platform.errors import DiskFaultError, StoreDamagedError
from orbitmq.platform.local_disk import LocalDisk

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

KEY_BYTES = 32
NONCE_BYTES = 12


class SecretBox:
    """Encrypts short texts with AES-256-GCM. A text is bound to its name: entries cannot be exchanged."""

    def __init__(self, key: bytes) -> None:
        # Imported here, as only servers with users need it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._cipher = AESGCM(key)

    def lock(self, text: str, name: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, text.encode(), name.encode())).decode()

    def unlock(self, locked: str, name: str) -> str:
        """Raises StoreDamagedError if the key is another one, or the entry was changed."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        try:
            data = base64.b64decode(locked, validate=True)
            return self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name.encode()).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise StoreDamagedError(
                f"the password of the user {name!r} cannot be decrypted with this key"
            ) from None


def read_key(disk: Disk, path: str) -> bytes | None:
    """The key in a file; None if it does not exist. Raises DiskFaultError, StoreDamagedError."""
    try:
        if disk.stat(path) is None:
            return None
        key = bytes.fromhex(disk.read(path).decode("ascii", "replace").strip())
    except ValueError:
        key = b""
    except OSError as error:
        raise DiskFaultError(f"cannot read {path}: {error.strerror or error}") from error
    if len(key) != KEY_BYTES:
        raise StoreDamagedError(f"{path} has no key: it must have {2 * KEY_BYTES} hexadecimal digits")
    return key


def new_key(disk: Disk, path: str) -> bytes:
    """Create the file with a random key. Raises DiskFaultError."""
    key = os.urandom(KEY_BYTES)
    try:
        make_private(disk, path)
        disk.write(path, key.hex().encode() + b"\n")
        disk.sync(path)
        disk.sync_dir(os.path.dirname(path) or ".")
    except OSError as error:
        raise DiskFaultError(f"cannot write {path}: {error.strerror or error}") from error
    return key


def make_private(disk: Disk, path: str) -> None:
    """Create a file that only its owner can read, if it does not exist, before a disk writes it."""
    if isinstance(disk, LocalDisk):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    # A simulated disk has no such directory, and no modes.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
