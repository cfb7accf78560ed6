"""Credentials: the access key and secret with which a client signs its requests."""

from __future__ import annotations

import dataclasses

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads

MAX_KEY_LENGTH = 255
MAX_SECRET_LENGTH = 1024


class CredentialsError(Exception):
    """Credentials are missing a part, or cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """An access key (the name of a user), its secret, and the token of temporary credentials if there is one.

    Its ``repr`` names the access key only, so that logs and plans may hold it.
    """

    access_key: str
    secret_key: str = dataclasses.field(repr=False)
    security_token: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise CredentialsError("give both an access key and a secret key, or none of them")
        if len(self.access_key) > MAX_KEY_LENGTH or len(self.secret_key) > MAX_SECRET_LENGTH:
            raise CredentialsError(
                f"an access key has at most {MAX_KEY_LENGTH} characters and a secret key {MAX_SECRET_LENGTH}"
            )


def credentials_of_json(text: str, key: str) -> Credentials:
    """The credentials of a setting such as ``innerClientAuthenticationCredentials``. Raises CredentialsError.

    The members are ``accessKey`` and ``secretKey``, or ``username`` and ``password``, as RocketMQ's settings have
    them. The text is in no error: it has a secret.
    """
    form = f'{key} is not of the form {{"accessKey":"…","secretKey":"…"}}'
    if key == "initAuthenticationUser":
        form = f'{key} is not of the form {{"username":"…","password":"…"}}'
    try:
        found = loads(text.encode())
    except ProtocolError:
        raise CredentialsError(form) from None
    if not isinstance(found, dict):
        raise CredentialsError(form)
    name = found.get("accessKey") or found.get("username")
    secret = found.get("secretKey") or found.get("password")
    if not isinstance(name, str) or not isinstance(secret, str):
        raise CredentialsError(form)
    return Credentials(name, secret, str(found.get("securityToken") or ""))
