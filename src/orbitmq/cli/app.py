"""What the ``orbitmq`` command runs: the verb that is typed is loaded, and nothing else."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from orbitmq.cli.collecting import start_quietly
from orbitmq.cli.server_options import plain_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import typer

VERBS = {
    "quickstart": "orbitmq.cli.quickstart:quickstart",
    "serve": "orbitmq.cli.serve:serve",
    "send": "orbitmq.cli.send:send",
    "tail": "orbitmq.cli.tail:tail",
    "find": "orbitmq.cli.find:find",
    "trace": "orbitmq.cli.trace:trace",
    "nameserver": "orbitmq.cli.nameserver:nameserver",
    "broker": "orbitmq.cli.broker:broker",
    "store": "orbitmq.cli.store:store_app",
    "outbox": "orbitmq.cli.outbox:outbox_app",
    "pipeline": "orbitmq.cli.pipeline:pipeline_app",
    "sql": "orbitmq.cli.sql:sql",
    "bench": "orbitmq.cli.bench:bench_app",
}
"""What is behind each verb. A broker need not wait for the code that verifies stores, nor the other way round."""

SERVERS = frozenset({"serve", "nameserver", "broker"})
"""Verbs that start without Typer where they can."""


def app_with(verbs: Iterable[str]) -> typer.Typer:
    """The command, with these verbs."""
    from orbitmq.cli.root import make_app  # noqa: PLC0415 - most of the time that a server takes to start

    return make_app((verb, VERBS[verb]) for verb in verbs)


def main() -> None:
    """What the ``orbitmq`` command runs."""
    typed = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if typed in SERVERS and sys.argv[1] == typed and run_plainly(typed, sys.argv[2:]):
        return
    # A word that is no verb gets the list of those there are.
    app_with([typed] if typed in VERBS else VERBS)()


def run_plainly(verb: str, words: Sequence[str]) -> bool:
    """Run a server; False if its command line is for Typer."""
    start_quietly()
    module, name = VERBS[verb].split(":")
    action = getattr(importlib.import_module(module), name)
    arguments = plain_arguments(action, words)
    if arguments is None:
        return False
    try:
        action(**arguments)
    except RuntimeError as error:
        from typer import Exit  # noqa: PLC0415

        if not isinstance(error, Exit):
            raise
        sys.exit(error.exit_code)
    return True
