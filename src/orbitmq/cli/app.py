"""Entry point of the ``orbitmq`` command: loads the code of the verb on the command line and no other."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from orbitmq.cli.interrupts import INTERRUPTED
from orbitmq.cli.server.gc_tuning import disable_gc_for_start
from orbitmq.lazy_import import require_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import typer

VERBS = {
    "quickstart": "orbitmq.cli.quickstart.command:quickstart",
    "serve": "orbitmq.cli.server.serve:main",
    "send": "orbitmq.cli.messages.send:send",
    "tail": "orbitmq.cli.messages.tail:tail",
    "consume": "orbitmq.cli.messages.consume:consume",
    "request": "orbitmq.cli.messages.request:request",
    "reply": "orbitmq.cli.messages.request:reply",
    "find": "orbitmq.cli.messages.find:find",
    "trace": "orbitmq.cli.messages.trace:trace",
    "nameserver": "orbitmq.cli.server.nameserver:main",
    "broker": "orbitmq.cli.server.broker:main",
    "controller": "orbitmq.cli.server.controller:main",
    "proxy": "orbitmq.cli.server.proxy:main",
    "store": "orbitmq.cli.store.app:store_app",
    "outbox": "orbitmq.cli.outbox:outbox_app",
    "pipeline": "orbitmq.cli.pipeline.app:pipeline_app",
    "sql": "orbitmq.cli.sql.command:sql",
    "dashboard": "orbitmq.cli.dashboard:dashboard",
    "bench": "orbitmq.cli.bench.command:bench_app",
    "admin": "orbitmq.cli.admin.app:admin_app",
    "cluster": "orbitmq.cli.admin.verbs.cluster:cluster_app",
    "topic": "orbitmq.cli.admin.verbs.topic:topic_app",
    "group": "orbitmq.cli.admin.verbs.group:group_app",
    "offset": "orbitmq.cli.admin.verbs.offset:offset_app",
    "message": "orbitmq.cli.admin.verbs.message:message_app",
    "dlq": "orbitmq.cli.admin.verbs.dlq:dlq_app",
    "client": "orbitmq.cli.admin.verbs.client:client_app",
    "config": "orbitmq.cli.admin.verbs.config:config_app",
    "event": "orbitmq.cli.admin.verbs.event:event_app",
    "user": "orbitmq.cli.admin.verbs.access:user_app",
    "rule": "orbitmq.cli.admin.verbs.access:rule_app",
    "context": "orbitmq.cli.admin.verbs.context:context_app",
    "definitions": "orbitmq.cli.admin.watch.definitions:definitions_app",
    "mqadmin": "orbitmq.cli.admin.mqadmin.command:mqadmin",
    "check": "orbitmq.cli.admin.watch.check:check",
    "top": "orbitmq.cli.admin.watch.top:top",
    "bundle": "orbitmq.cli.admin.watch.bundle:bundle",
    "topics": "orbitmq.cli.admin.verbs.topic:topics",
    "groups": "orbitmq.cli.admin.verbs.group:groups",
    "brokers": "orbitmq.cli.admin.verbs.broker:brokers",
    "clusters": "orbitmq.cli.admin.verbs.cluster:clusters",
    "events": "orbitmq.cli.admin.verbs.event:events",
    "lag": "orbitmq.cli.admin.verbs.group:lag",
    "reset": "orbitmq.cli.admin.verbs.group:reset_offsets",
}
"""Module and name of the code behind each verb, imported when the verb is used: a broker does not import the
verification of stores, and the other way round."""

SERVERS = {
    "serve": "Run a name server and one or more brokers until Ctrl-C: a whole cluster on this machine.",
    "nameserver": "Run a name server: brokers register with it, clients find brokers through it.",
    "broker": "Run a broker: it stores messages and serves producers, consumers and tools.",
    "controller": "Run a controller: it elects the masters of broker groups when one is gone.",
    "proxy": "Run a proxy: clients of the gRPC protocol reach the brokers of a cluster, OrbitMQ's or Apache's.",
}
"""Verbs that run a server, with their one-line help. They parse their own arguments, without Typer.

``nameserver``, ``broker`` and ``controller`` are nouns of operators too: ``orbitmq broker status`` runs no broker.
"""

UNPARSED = {"mqadmin": "Apache RocketMQ's mqadmin: its commands, options and output."}
"""Other verbs that parse their own arguments."""


def app_with(verbs: Iterable[str]) -> typer.Typer:
    """The Typer application with these verbs."""
    from orbitmq.cli.root import make_app  # noqa: PLC0415 - takes longer to import than a server takes to start

    return make_app({verb: VERBS[verb] for verb in verbs}, SERVERS | UNPARSED)


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
        sys.exit(INTERRUPTED)


def _run() -> None:
    verb = _completed_verb() or next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if (verb in SERVERS or verb in UNPARSED) and sys.argv[1:2] == [verb]:
        if not is_operated(verb, sys.argv[2:]):
            disable_gc_for_start()
        run_server(verb, sys.argv[2:])
    else:
        # All verbs for an unknown one, so that the error can list them.
        app_with([verb] if verb in VERBS else VERBS)()


def _completed_verb() -> str:
    """The verb of a command line that a shell completes, once it is typed whole."""
    if "_ORBITMQ_COMPLETE" not in os.environ:
        return ""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = typed.split()
    return words[1] if len(words) > 2 or (len(words) == 2 and typed[-1:].isspace()) else ""


def is_operated(verb: str, arguments: Sequence[str]) -> bool:
    """True if a command is about servers and runs none: servers have no arguments, only options."""
    return verb in {"broker", "nameserver", "controller"} and bool(arguments) and not arguments[0].startswith("-")


def run_server(verb: str, arguments: Sequence[str]) -> None:
    """Run a verb that parses its own arguments. Raises SystemExit with a code other than 0 if it fails."""
    if not operate(verb, arguments):
        if verb in SERVERS:
            require_server(f"orbitmq {verb}")
        module, name = VERBS[verb].split(":")
        getattr(importlib.import_module(module), name)(arguments)


def operate(verb: str, arguments: Sequence[str]) -> bool:
    """Run a command that is about servers, and raise SystemExit; False if these arguments run a server."""
    if not is_operated(verb, arguments):
        return False
    app_with(["admin"])(["admin", verb, *arguments], prog_name="orbitmq")
    return True
