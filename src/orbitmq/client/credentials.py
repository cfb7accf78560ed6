"""Credentials of clients: from arguments, a file that only its owner can read, or the environment.

All clients use it: the SDK, the operator's client, Spark's data sources, and the commands. A secret given as an
argument of a command is visible in the list of processes, and an option of a Spark query in its plan; a file is
neither.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from orbitmq.auth.credentials import Credentials, CredentialsError
from orbitmq.auth.signature import Signer
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Credentials", "CredentialsError", "Signer", "load_credentials", "read_credentials_file", "signer_of"]

ACCESS_KEY_VARIABLE = "ORBITMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE = "ORBITMQ_SECRET_KEY"  # noqa: S105  # the name of a variable
SECURITY_TOKEN_VARIABLE = "ORBITMQ_SECURITY_TOKEN"  # noqa: S105
FILE_VARIABLE = "ORBITMQ_CREDENTIALS_FILE"

MAX_FILE_BYTES = 65_536


def load_credentials(
    access_key: str = "",
    secret_key: str = "",
    security_token: str = "",
    *,
    path: str = "",
    environment: Mapping[str, str] | None = None,
) -> Credentials | None:
    """The credentials of a client; None if there are none. Raises CredentialsError.

    In this order: the arguments, the file at ``path``, the variables ``ORBITMQ_ACCESS_KEY`` and
    ``ORBITMQ_SECRET_KEY``, the file that ``ORBITMQ_CREDENTIALS_FILE`` names.
    """
    if access_key or secret_key:
        return Credentials(access_key, secret_key, security_token)
    if path:
        return read_credentials_file(path)
    variables = os.environ if environment is None else environment
    access_key, secret_key = variables.get(ACCESS_KEY_VARIABLE, ""), variables.get(SECRET_KEY_VARIABLE, "")
    if access_key or secret_key:
        if not access_key or not secret_key:
            raise CredentialsError(f"set both {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}, or none of them")
        return Credentials(access_key, secret_key, variables.get(SECURITY_TOKEN_VARIABLE, ""))
    path = variables.get(FILE_VARIABLE, "")
    return read_credentials_file(path) if path else None


def signer_of(credentials: Credentials | None) -> Signer | None:
    """The signer for a client's connections; None without credentials."""
    return None if credentials is None else Signer(credentials)


def read_credentials_file(path: str) -> Credentials:
    """The credentials in a file: ``accessKey=…`` and ``secretKey=…`` on a line each, or JSON.

    RocketMQ's ``tools.yml`` is read too. Raises CredentialsError, for a file that others can read too.
    """
    path = os.path.expanduser(path)
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise CredentialsError(
                    f"{path} can be read by others (mode {stat.S_IMODE(mode):o}): run chmod 600 {path}"
                )
            text = file.read(MAX_FILE_BYTES + 1).decode("utf-8-sig", "replace")
    except OSError as error:
        raise CredentialsError(f"cannot read the credentials in {path}: {error.strerror or error}") from None
    if len(text) > MAX_FILE_BYTES:
        raise CredentialsError(f"{path} is longer than {MAX_FILE_BYTES} bytes: it has no credentials")
    found = _members(text)
    access_key = found.get("accesskey") or found.get("username") or ""
    secret_key = found.get("secretkey") or found.get("password") or ""
    if not access_key or not secret_key:
        # Without the text: it may hold a secret under another name.
        raise CredentialsError(f"{path} has no accessKey=… and secretKey=… on a line each")
    return Credentials(access_key, secret_key, found.get("securitytoken", ""))


def _members(text: str) -> dict[str, str]:
    """The members of JSON, properties or flat YAML, by their names in lower case without separators."""
    if text.lstrip().startswith("{"):
        try:
            value = loads(text.encode())
        except ProtocolError:
            return {}
        pairs = [(str(key), str(one)) for key, one in value.items()] if isinstance(value, dict) else []
    else:
        pairs = [_pair(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {name.strip().lower().replace("_", "").replace("-", ""): one for name, one in pairs}


def _pair(line: str) -> tuple[str, str]:
    at = min((found for found in (line.find("="), line.find(":")) if found >= 0), default=len(line))
    value = line[at + 1 :].strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return line[:at], value
