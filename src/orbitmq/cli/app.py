"""Entry point of the ``orbitmq`` command: loads the code of the verb on the command line and no other."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from orbitmq.cli.server.gc_tuning import disable_gc_for_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import typer

VERBS = {
    "quickstart": "orbitmq.cli.quickstart.command:quickstart",
    "serve": "orbitmq.cli.server.serve:main",
    "send": "orbitmq.cli.messages.send:send",
    "tail": "orbitmq.cli.messages.tail:tail",
    "find": "orbitmq.cli.messages.find:find",
    "trace": "orbitmq.cli.messages.trace:trace",
    "nameserver": "orbitmq.cli.server.nameserver:main",
    "broker": "orbitmq.cli.server.broker:main",
    "proxy": "orbitmq.cli.server.proxy:main",
    "store": "orbitmq.cli.store.app:store_app",
    "outbox": "orbitmq.cli.outbox:outbox_app",
    "pipeline": "orbitmq.cli.pipeline.app:pipeline_app",
    "sql": "orbitmq.cli.sql.command:sql",
    "bench": "orbitmq.cli.bench.command:bench_app",
}
"""Module and name of the code behind each verb, imported when the verb is used: a broker does not import the
verification of stores, and the other way round."""

SERVERS = {
    "serve": "Run a name server and one or more brokers until Ctrl-C: a whole cluster on this machine.",
    "nameserver": "Run a name server: brokers register with it, clients find brokers through it.",
    "broker": "Run a broker: it stores messages and serves producers, consumers and tools.",
    "proxy": "Run a proxy: clients of the gRPC protocol reach the brokers of a cluster, OrbitMQ's or Apache's.",
}
"""Verbs that run a server, with their one-line help. They parse their own arguments, without Typer."""


def app_with(verbs: Iterable[str]) -> typer.Typer:
    """The Typer application with these verbs."""
    from orbitmq.cli.root import make_app  # noqa: PLC0415 - takes longer to import than a server takes to start

    return make_app({verb: VERBS[verb] for verb in verbs}, SERVERS)


def main() -> None:
    """Run the command line of this process. A missing extra or Ctrl-C is one sentence, also while modules load."""
    try:
        _run()
    except ImportError as error:
        from orbitmq.cli.missing_extra import sentence_for  # noqa: PLC0415

        sentence = sentence_for(error)
        if sentence is None:
            raise
        sys.exit(f"orbitmq: {sentence}")
    except KeyboardInterrupt:
        print("orbitmq: interrupted", file=sys.stderr)
        sys.exit(130)


def _run() -> None:
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if verb in SERVERS and sys.argv[1] == verb:
        disable_gc_for_start()
        run_server(verb, sys.argv[2:])
    else:
        # All verbs for an unknown one, so that the error can list them.
        app_with([verb] if verb in VERBS else VERBS)()


def run_server(verb: str, arguments: Sequence[str]) -> None:
    """Run a server command until it ends. Raises SystemExit with a code other than 0 if it fails."""
    module, name = VERBS[verb].split(":")
    getattr(importlib.import_module(module), name)(arguments)
