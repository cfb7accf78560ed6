"""Options of the operator's client."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypedDict

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.client.credentials import Credentials, CredentialsError, load_credentials
from orbitmq.client.tls_environment import tls_of_environment
from orbitmq.platform.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import ClientTls


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """Options of ``AdminClient``. Times are seconds."""

    name_servers: tuple[str, ...]
    """``host:port`` of each. Reads use the first that responds, changes go to all."""
    cluster: str = ""
    """Cluster that is meant where a call names none. Empty: the only one, or all of them for reads."""
    timeout: float = 5.0
    """For one response. Requests that compute over a whole broker have three times as long."""
    max_concurrent_requests: int = 32
    access_key: str = ""
    secret_key: str = dataclasses.field(default="", repr=False)
    security_token: str = dataclasses.field(default="", repr=False)
    credentials_file: str = ""
    """File with ``accessKey`` and ``secretKey``, which only its owner may read."""
    credentials: Credentials | None = dataclasses.field(init=False)
    """What the options above and the environment give, see ``orbitmq.client.credentials``."""
    sign: Callable[[Command], None] | None = dataclasses.field(default=None, compare=False, repr=False)
    """Called with every request before it is sent, in place of the signature by ``credentials``."""
    tls: ClientTls | None = None
    clock: Clock = dataclasses.field(default=SYSTEM_CLOCK, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise InvalidRequestError(f"timeout must be more than 0, not {self.timeout}")
        if self.max_concurrent_requests < 1:
            raise InvalidRequestError(
                f"max_concurrent_requests must be 1 or more, not {self.max_concurrent_requests}"
            )
        if bool(self.access_key) != bool(self.secret_key):
            raise InvalidRequestError("give both access_key and secret_key, or none of them")
        try:
            credentials = load_credentials(
                self.access_key, self.secret_key, self.security_token, path=self.credentials_file
            )
        except CredentialsError as error:
            raise InvalidRequestError(str(error)) from None
        object.__setattr__(self, "credentials", credentials)
        if self.tls is None:
            object.__setattr__(self, "tls", tls_of_environment())


class AdminOptions(TypedDict, total=False):
    """Keywords of ``AdminClient``: the fields of ``AdminConfig``."""

    cluster: str
    timeout: float
    max_concurrent_requests: int
    access_key: str
    secret_key: str
    security_token: str
    credentials_file: str
    sign: Callable[[Command], None] | None
    tls: ClientTls | None
    clock: Clock
