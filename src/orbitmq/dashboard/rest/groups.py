"""Consumer groups: lists, descriptions, members, changes, offsets."""

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from orbitmq.admin.group.model import GroupSettings, GroupSummary
from orbitmq.admin.group.offsets import OffsetChange, ResetTo
from orbitmq.dashboard.listing import Page
from orbitmq.dashboard.rest.context import ActorDep, ClusterDep, ConsoleDep, DryRun, ListingDep, PageView
from orbitmq.dashboard.rest.views import (
    ChangeView,
    ConnectionsView,
    GroupSummaryView,
    GroupView,
    LagView,
    OffsetChangeView,
    SubscriptionCheckView,
)
from orbitmq.dashboard.subjects import groups as lists

router = APIRouter(prefix="/clusters/{cluster}/groups", tags=["groups"])


class GroupChange(BaseModel):
    """Settings of a group; what is left out stays as it is, or as brokers create it."""

    consume_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: Annotated[int | None, Field(ge=0, le=1024)] = None
    retry_max_times: Annotated[int | None, Field(ge=-1, le=1_000_000)] = None
    consume_timeout_minute: Annotated[int | None, Field(ge=0)] = None
    attributes: Annotated[dict[str, str], Field(max_length=100)] = {}

    def settings(self) -> GroupSettings:
        given = {name: getattr(self, name) for name in GroupChange.model_fields}
        return GroupSettings(**given)


class NewGroup(GroupChange):
    """A group to create, on all masters of a RocketMQ cluster."""

    name: Annotated[str, Field(max_length=255)]
    cluster: str = ""


class Reset(BaseModel):
    """A reset of offsets: to the earliest, the latest, a time, or an offset of one queue."""

    topic: str
    earliest: bool = False
    latest: bool = False
    time_ms: int | None = None
    offset: int | None = None
    broker_name: str = ""
    queue_id: int | None = None


@router.get("", summary="Groups with their lag", response_model=PageView[GroupSummaryView])
async def list_groups(cluster: ClusterDep, listing: ListingDep, system: bool = False) -> Page[GroupSummary]:
    return await lists.list_groups(cluster, listing, with_system=system)


@router.post("", summary="Create a group", status_code=201)
async def create_group(
    console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, given: NewGroup, dry_run: DryRun = False
) -> list[ChangeView]:
    changes = await lists.put_group(
        console,
        actor,
        cluster,
        given.name,
        given.settings(),
        is_new=True,
        in_cluster=given.cluster,
        dry_run=dry_run,
    )
    return [ChangeView.of(change) for change in changes]


@router.get("/{group}", summary="A group with members, subscriptions and lag")
async def describe_group(cluster: ClusterDep, group: str) -> GroupView:
    found = await cluster.group(group)
    return GroupView(
        name=found.name,
        is_online=found.is_online,
        settings=lists.settings_of(found),
        connections=None if found.connections is None else ConnectionsView.model_validate(found.connections),
        check=None if found.check is None else SubscriptionCheckView.model_validate(found.check),
        lag=LagView.model_validate(found.lag),
        dead_letters=found.dead_letters,
    )


@router.patch("/{group}", summary="Change a group")
async def alter_group(
    console: ConsoleDep,
    actor: ActorDep,
    cluster: ClusterDep,
    group: str,
    given: GroupChange,
    dry_run: DryRun = False,
) -> list[ChangeView]:
    changes = await lists.put_group(console, actor, cluster, group, given.settings(), is_new=False, dry_run=dry_run)
    return [ChangeView.of(change) for change in changes]


@router.delete("/{group}", summary="Delete a group with its offsets, retry topic and dead letters")
async def delete_group(
    console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, group: str, dry_run: DryRun = False
) -> list[ChangeView]:
    changes = await lists.delete_group(console, actor, cluster, group, dry_run=dry_run)
    return [ChangeView.of(change) for change in changes]


@router.get("/{group}/members/{client_id}", summary="The inner state of a member, in RocketMQ's names")
async def running_info(cluster: ClusterDep, group: str, client_id: str, stacks: bool = False) -> dict[str, Any]:
    info = await cluster.admin.members.running_info(group, client_id, with_stacks=stacks)
    return info.to_json()


@router.post("/{group}/offsets", summary="Reset offsets", response_model=list[OffsetChangeView])
async def reset_offsets(
    console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, group: str, given: Reset, dry_run: DryRun = False
) -> list[OffsetChange]:
    to = ResetTo(earliest=given.earliest, latest=given.latest, time_ms=given.time_ms, offset=given.offset)
    queue = (given.broker_name, given.queue_id)
    return await lists.reset_offsets(console, actor, cluster, group, given.topic, to, queue=queue, dry_run=dry_run)
