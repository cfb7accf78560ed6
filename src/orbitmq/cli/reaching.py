"""What verbs that are clients of a cluster share: where its name servers are, and errors in a sentence."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Annotated

import typer

from orbitmq.cli.console import complain, plain_errors

DEFAULT_NAME_SERVER = "127.0.0.1:9876"

QUIET_SECONDS = 60.0
MOST_REMEMBERED = 1000
"""A warning is not repeated for so long, as far as so many can be told apart."""

NameServers = Annotated[
    str,
    typer.Option(
        "--nameserver",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="ADDR",
        help="Name servers of the cluster: host:port;host:port.",
    ),
]


@contextlib.contextmanager
def client_errors() -> Iterator[None]:
    """What goes wrong becomes a sentence and exit code 1; so do warnings of the client, without the exit."""
    # Imported when it is needed, as everything of the client: help texts do without it.
    from orbitmq.client.errors import OrbitMQError  # noqa: PLC0415
    from orbitmq.remoting import RemotingError  # noqa: PLC0415

    with plain_errors(), _warnings_said():
        try:
            yield
        except (OrbitMQError, RemotingError) as error:
            complain(str(error))
            raise typer.Exit(1) from None


class _Saying(logging.Handler):
    """Says each warning once in a while: a broker that is away is tried every second, for every queue."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.created - self._said.get(text, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        if len(self._said) >= MOST_REMEMBERED:
            self._said.clear()
        self._said[text] = record.created
        complain(text)


@contextlib.contextmanager
def _warnings_said() -> Iterator[None]:
    log = logging.getLogger("orbitmq")
    saying, before = _Saying(), log.propagate
    log.addHandler(saying)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(saying)
        log.propagate = before
