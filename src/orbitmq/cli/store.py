"""``orbitmq store …``: looking at store directories, of Apache RocketMQ or of OrbitMQ, and mending them."""

import typer

from orbitmq.cli.store_dump import dump_command
from orbitmq.cli.store_inspect import inspect_command
from orbitmq.cli.store_rebuild import rebuild_command
from orbitmq.cli.store_verify import verify_command

store_app = typer.Typer(
    help="Look at a store directory of Apache RocketMQ or OrbitMQ, running or stopped, and mend it.",
    no_args_is_help=True,
)
store_app.command("inspect")(inspect_command)
store_app.command("dump")(dump_command)
store_app.command("verify")(verify_command)
store_app.command("rebuild")(rebuild_command)
