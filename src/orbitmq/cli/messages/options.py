"""Shared by commands that are clients of a cluster: the name server option, and errors as one sentence."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Annotated

import typer

from orbitmq.cli.output import complain, plain_errors

DEFAULT_NAME_SERVER = "127.0.0.1:9876"

QUIET_SECONDS = 60.0
MAX_REMEMBERED = 1000
"""A warning is not repeated for this many seconds; this many different ones are remembered."""

NameServers = Annotated[
    str,
    typer.Option(
        "--nameserver",
        "-n",
        envvar="NAMESRV_ADDR",
        metavar="ADDR",
        help="Name servers of the cluster, as host:port, separated by ';'.",
    ),
]


@contextlib.contextmanager
def client_errors() -> Iterator[None]:
    """Print errors as one sentence and exit with code 1; print warnings of the client as they occur."""
    # Imported here and not for help texts, as everything of the client.
    from orbitmq.client.errors import OrbitMQError  # noqa: PLC0415
    from orbitmq.remoting import RemotingError  # noqa: PLC0415

    with plain_errors(), _warnings_printed():
        try:
            yield
        except (OrbitMQError, RemotingError) as error:
            complain(str(error))
            raise typer.Exit(1) from None


class _WarningPrinter(logging.Handler):
    """Prints warnings, rate-limited: an unreachable broker is retried every second, for every queue."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.created - self._printed.get(text, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        if len(self._printed) >= MAX_REMEMBERED:
            self._printed.clear()
        self._printed[text] = record.created
        complain(text)


@contextlib.contextmanager
def _warnings_printed() -> Iterator[None]:
    log = logging.getLogger("orbitmq")
    handler, before = _WarningPrinter(), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
