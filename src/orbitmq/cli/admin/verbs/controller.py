"""``orbitmq controller``: who leads, which replicas are in sync, elections.

``orbitmq controller`` without one of these verbs runs a controller.
"""

from typing import Annotated

import typer

from orbitmq.cli.admin.framework.operator import FAILED, ChangeOptions, Operator, confirm, settings_of, verb
from orbitmq.cli.admin.framework.view import Pairs, Table, View
from orbitmq.cli.admin.verbs.config import Settings

controller_app = typer.Typer(
    help="Controllers: show, replicas, why, elect, config; no verb runs one.", no_args_is_help=True
)
config_app = typer.Typer(help="Settings of a controller: get, set.", no_args_is_help=True)
controller_app.add_typer(config_app, name="config")

Address = Annotated[str, typer.Option("--address", "-a", metavar="HOST:PORT", help="A controller.")]


@verb(controller_app, "show")
async def show(operator: Operator, address: Address) -> View:
    """Show the leader and peers of controllers."""
    found = await operator.admin.controllers.metadata(address)
    about = {"group": found.group, "leader": found.leader_id, "leaderAddress": found.leader_address}
    return View.of(Pairs({**about, "peers": found.peers}))


@verb(controller_app, "replicas")
async def replicas(
    operator: Operator, address: Address, broker: Annotated[list[str], typer.Argument(metavar="BROKER...")]
) -> View:
    """List the replicas of broker names, and whether they are in sync."""
    found = await operator.admin.controllers.replicas(address, broker)
    rows = []
    for name, info in sorted(found.replicas_info_table.items()):
        for in_sync, members in ((True, info.in_sync_replicas), (False, info.not_in_sync_replicas)):
            rows += [
                (
                    name,
                    one.broker_id,
                    one.broker_address,
                    one.broker_id == info.master_broker_id,
                    in_sync,
                    one.alive,
                    info.master_epoch,
                )
                for one in members
            ]
    return View.of(Table("broker id> address master inSync alive epoch>", rows, "the controller knows no replicas"))


@verb(controller_app, "why")
async def why(
    operator: Operator,
    address: Address,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Broker name.")],
) -> View:
    """Explain why a broker name has a master or none, and what is safe to do.

    Exit code 1 without a master.
    """
    found = await operator.admin.controllers.explain(address, broker)
    about = Pairs(
        {
            "broker": found.broker_name,
            "master": found.master,
            "masterEpoch": found.master_epoch,
            "syncStateSetEpoch": found.sync_state_set_epoch,
            "why": found.reason,
        }
    )
    rows = [
        (one.id, one.address, one.in_sync, one.alive, one.epoch, one.max_offset, one.missing, one.effect)
        for one in found.replicas
    ]
    replicas_table = Table("id> address inSync alive epoch> maxOffset> missing> ifElected", rows)
    steps = Table("step> what", list(enumerate(found.advice, 1)))
    return View({"": about, "replicas": replicas_table, "toDo": steps}, exit_code=0 if found.has_master else FAILED)


@verb(controller_app, "elect")
async def elect(
    operator: Operator,
    address: Address,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Broker name.")],
    broker_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the replica that becomes master.")],
    change: ChangeOptions,
) -> View:
    """Make a replica the master of its broker name."""
    if change.dry_run:
        return await replicas(operator, address, [broker])
    if not change.yes:
        confirm(f"make replica {broker_id} the master of {broker}")
    found = await operator.admin.controllers.elect_master(address, operator.admin.config.cluster, broker, broker_id)
    return View.of(
        Pairs({"broker": broker, "id": found.broker_id, "address": found.address, "epoch": found.master_epoch})
    )


@verb(config_app, "get")
async def get(operator: Operator, address: Address) -> View:
    """Print the settings of a controller."""
    return View.of(Pairs(await operator.admin.controllers.settings(address), is_verbatim=True))


@verb(config_app, "set")
async def change_settings(operator: Operator, address: Address, settings: Settings, change: ChangeOptions) -> View:
    """Change settings of a controller while it runs."""
    values = settings_of(settings)
    return await operator.change(
        change, lambda dry: operator.admin.controllers.alter_settings(address, values, dry_run=dry)
    )
