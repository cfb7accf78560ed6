"""``orbitmq cluster``: clusters with their brokers and totals."""

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.admin.framework.completion import complete_cluster
from orbitmq.cli.admin.framework.operator import Operator, command_of, verb
from orbitmq.cli.admin.framework.view import Pairs, Table, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.admin.cluster.runtime import BrokerStatus

cluster_app = typer.Typer(help="Clusters: list, describe.", no_args_is_help=True)


@verb(cluster_app, "list")
async def list_clusters(operator: Operator) -> View:
    """List the clusters that the name servers know."""
    rows = [
        (one.name, one.masters, one.slaves, one.broker_names, one.without_master)
        for one in await operator.admin.clusters.all()
    ]
    return View.of(Table("name masters> slaves> brokers withoutMaster", rows, "no broker is registered"))


@verb(cluster_app, "describe")
async def describe(
    operator: Operator,
    name: Annotated[
        str, typer.Argument(metavar="[CLUSTER]", help="All if omitted.", autocompletion=complete_cluster)
    ] = "",
) -> View:
    """Show clusters with the live figures of their brokers."""
    found = await operator.admin.clusters.describe(name)
    parts: dict[str, Pairs | Table] = {}
    if len(found) == 1:
        one = found[0]
        parts[""] = Pairs(
            {
                "name": one.summary.name,
                "masters": one.summary.masters,
                "slaves": one.summary.slaves,
                "putTps": one.put_tps,
                "getTps": one.get_tps,
                "putsToday": one.puts_today,
                "getsToday": one.gets_today,
            }
        )
    parts["brokers"] = broker_table(status for one in found for status in one.brokers)
    return View(parts)


def broker_table(statuses: "Iterable[BrokerStatus]") -> Table:
    """Brokers with their live figures, or the reason why one does not respond."""
    rows: list[tuple[object, ...]] = []
    for status in statuses:
        broker, runtime = status.broker, status.runtime
        start = (broker.broker_name, broker.broker_id, "master" if broker.is_master else "slave", broker.address)
        if runtime is None:
            rows.append((*start, None, None, None, -1.0, None, None, status.reason))
            continue
        figures = (runtime.version, runtime.put_tps, runtime.get_tps, runtime.disk_ratio)
        state = "up" if runtime.is_active or not broker.is_master else "not active"
        rows.append((*start, *figures, runtime.puts_today, runtime.gets_today, state))
    spec = "broker id> role address version putTps> getTps> disk% putsToday> getsToday> state"
    return Table(spec, rows, "no broker is registered")


clusters = command_of(list_clusters)
