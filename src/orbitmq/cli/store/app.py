"""``orbitmq store``: inspects and repairs store directories of Apache RocketMQ or OrbitMQ."""

import typer

from orbitmq.cli.store.dump import dump_command
from orbitmq.cli.store.inspect import inspect_command
from orbitmq.cli.store.rebuild import rebuild_command
from orbitmq.cli.store.verify import verify_command

store_app = typer.Typer(
    help="Inspect, verify and rebuild a store directory of Apache RocketMQ or OrbitMQ.",
    no_args_is_help=True,
)
store_app.command("inspect")(inspect_command)
store_app.command("dump")(dump_command)
store_app.command("verify")(verify_command)
store_app.command("rebuild")(rebuild_command)
