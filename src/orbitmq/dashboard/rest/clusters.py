"""Clusters, brokers and name servers."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from orbitmq.admin.cluster.runtime import BrokerStatus
from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.rest.context import ActorDep, ClusterDep, ConsoleDep, DryRun, View
from orbitmq.dashboard.rest.views import BrokerView, ChangeView, NameServerView, ReplicationView
from orbitmq.dashboard.subjects import overview
from orbitmq.dashboard.subjects.brokers import check_broker

router = APIRouter(tags=["clusters"])

ALTER_BROKER = "alter broker settings"
ALTER_NAME_SERVER = "alter name server settings"


class TargetView(View):
    """A cluster of this console."""

    name: str
    name_servers: str


class ProblemView(View):
    """Something that needs attention."""

    severity: str
    subject: str
    text: str


class OverviewView(View):
    """The state of a cluster at a glance."""

    clusters: list[str]
    brokers: int
    brokers_up: int
    put_tps: float
    get_tps: float
    puts_today: int
    gets_today: int
    topics: int
    groups: int
    lag: int
    problems: list[ProblemView]


class SettingsChange(BaseModel):
    """Settings to change, as text by name."""

    values: Annotated[dict[str, str], Field(min_length=1, max_length=200)]


@router.get("/clusters", summary="The clusters of this console")
async def clusters(console: ConsoleDep) -> list[TargetView]:
    return [TargetView.model_validate(one) for one in console.clusters.all()]


@router.get("/clusters/{cluster}/overview", summary="Rates, totals and problems", response_model=OverviewView)
async def overview_of(cluster: ClusterDep) -> overview.Overview:
    return await overview.overview_of(cluster)


@router.get("/clusters/{cluster}/brokers", summary="Brokers with live figures", response_model=list[BrokerView])
async def brokers(cluster: ClusterDep) -> list[BrokerStatus]:
    return await cluster.brokers()


@router.get("/clusters/{cluster}/brokers/{broker}/runtime", summary="All live figures of a broker")
async def runtime(cluster: ClusterDep, broker: str) -> dict[str, str]:
    return dict((await cluster.admin.brokers.runtime(await check_broker(cluster, broker))).table)


@router.get(
    "/clusters/{cluster}/brokers/{broker}/replication", summary="Replication", response_model=ReplicationView
)
async def replication(cluster: ClusterDep, broker: str) -> object:
    return await cluster.admin.brokers.replication(await check_broker(cluster, broker))


@router.get("/clusters/{cluster}/brokers/{broker}/settings", summary="Settings of a broker")
async def settings(cluster: ClusterDep, broker: str) -> dict[str, str]:
    return await cluster.admin.brokers.settings(await check_broker(cluster, broker))


@router.patch("/clusters/{cluster}/brokers/{broker}/settings", summary="Change settings of a broker")
async def alter_settings(
    console: ConsoleDep,
    actor: ActorDep,
    cluster: ClusterDep,
    broker: str,
    given: SettingsChange,
    dry_run: DryRun = False,
) -> list[ChangeView]:
    await check_broker(cluster, broker)
    work = cluster.admin.brokers.alter_settings
    if dry_run:
        changes = await work(given.values, broker=broker, dry_run=True)
    else:
        action = Action(ALTER_BROKER, f"{broker}: {', '.join(sorted(given.values))}", Role.ADMIN)
        changes = await console.change(actor, cluster, action, lambda: work(given.values, broker=broker))
    return [ChangeView.of(change) for change in changes]


@router.get("/clusters/{cluster}/name-servers", summary="Name servers", response_model=list[NameServerView])
async def name_servers(cluster: ClusterDep) -> object:
    return await cluster.name_server_list()


@router.get("/clusters/{cluster}/name-servers/settings", summary="Settings of a name server")
async def name_server_settings(
    cluster: ClusterDep, address: Annotated[str, Query(description="host:port; by default the first")] = ""
) -> dict[str, str]:
    overview.check_name_server(cluster, address)
    return await cluster.admin.name_servers.settings(address)


@router.patch("/clusters/{cluster}/name-servers/settings", summary="Change settings of all name servers")
async def alter_name_server_settings(
    console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, given: SettingsChange, dry_run: DryRun = False
) -> list[ChangeView]:
    work = cluster.admin.name_servers.alter_settings
    if dry_run:
        changes = await work(given.values, dry_run=True)
    else:
        action = Action(ALTER_NAME_SERVER, ", ".join(sorted(given.values)), Role.ADMIN)
        changes = await console.change(actor, cluster, action, lambda: work(given.values))
    return [ChangeView.of(change) for change in changes]
