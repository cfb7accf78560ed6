"""``orbitmq admin``: all nouns of operators in one place. Each is also a verb of ``orbitmq`` itself."""

import typer

from orbitmq.cli.admin.verbs.access import rule_app, user_app
from orbitmq.cli.admin.verbs.broker import broker_app
from orbitmq.cli.admin.verbs.client import client_app
from orbitmq.cli.admin.verbs.cluster import cluster_app
from orbitmq.cli.admin.verbs.config import config_app
from orbitmq.cli.admin.verbs.context import context_app
from orbitmq.cli.admin.verbs.controller import controller_app
from orbitmq.cli.admin.verbs.dlq import dlq_app
from orbitmq.cli.admin.verbs.event import event_app
from orbitmq.cli.admin.verbs.group import group_app
from orbitmq.cli.admin.verbs.message import message_app
from orbitmq.cli.admin.verbs.nameserver import nameserver_app
from orbitmq.cli.admin.verbs.offset import offset_app
from orbitmq.cli.admin.verbs.topic import topic_app
from orbitmq.cli.admin.watch.bundle import bundle
from orbitmq.cli.admin.watch.check import check
from orbitmq.cli.admin.watch.definitions import definitions_app
from orbitmq.cli.admin.watch.top import top

NOUNS = {
    "cluster": cluster_app,
    "broker": broker_app,
    "nameserver": nameserver_app,
    "topic": topic_app,
    "group": group_app,
    "offset": offset_app,
    "message": message_app,
    "dlq": dlq_app,
    "client": client_app,
    "config": config_app,
    "event": event_app,
    "user": user_app,
    "rule": rule_app,
    "controller": controller_app,
    "context": context_app,
    "definitions": definitions_app,
}

admin_app = typer.Typer(help="Administration: clusters, topics, groups, messages, settings.", no_args_is_help=True)
for _name, _noun in NOUNS.items():
    admin_app.add_typer(_noun, name=_name)
admin_app.command("check")(check)
admin_app.command("bundle")(bundle)
admin_app.command("top")(top)
