"""Topics: lists, descriptions, changes, sending."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from orbitmq.admin.topic.model import TopicDescription, TopicSettings, TopicSummary
from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.listing import Page
from orbitmq.dashboard.rest.context import ActorDep, ClusterDep, ConsoleDep, DryRun, ListingDep, PageView, View
from orbitmq.dashboard.rest.views import ChangeView, TopicSummaryView, TopicView
from orbitmq.dashboard.subjects import topics as lists

router = APIRouter(prefix="/clusters/{cluster}/topics", tags=["topics"])


class TopicChange(BaseModel):
    """Settings of a topic; what is left out stays as it is, or as brokers create it. ``perm``: 2 write, 4 read."""

    read_queues: Annotated[int | None, Field(ge=0, le=65535)] = None
    write_queues: Annotated[int | None, Field(ge=0, le=65535)] = None
    perm: Annotated[int | None, Field(ge=0, le=7)] = None
    order: bool | None = None
    attributes: Annotated[dict[str, str], Field(max_length=100)] = {}
    remove_attributes: Annotated[list[str], Field(max_length=100)] = []

    def settings(self) -> TopicSettings:
        return TopicSettings(
            read_queues=self.read_queues,
            write_queues=self.write_queues,
            perm=self.perm,
            order=self.order,
            attributes=self.attributes,
            remove_attributes=tuple(self.remove_attributes),
        )


class NewTopic(TopicChange):
    """A topic to create, on all masters of a RocketMQ cluster or on one broker."""

    name: Annotated[str, Field(max_length=127)]
    cluster: str = ""
    broker: str = ""


class NewMessage(BaseModel):
    """A message to send."""

    body: Annotated[str, Field(max_length=4 << 20)]
    tags: Annotated[str, Field(max_length=255)] = ""
    keys: Annotated[list[str], Field(max_length=100)] = []
    properties: Annotated[dict[str, str], Field(max_length=100)] = {}
    sharding_key: str = ""
    delay_seconds: Annotated[float | None, Field(ge=0)] = None


class ReceiptView(View):
    """The result of a send."""

    message_id: str
    offset_message_id: str
    queue_offset: int


@router.get("", summary="Topics", response_model=PageView[TopicSummaryView])
async def list_topics(
    cluster: ClusterDep,
    listing: ListingDep,
    kind: Annotated[str, Query(description="normal, retry, dead letter, system or all")] = "normal",
) -> Page[TopicSummary]:
    return await lists.list_topics(cluster, listing, kind)


@router.post("", summary="Create a topic", status_code=201)
async def create_topic(
    console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, given: NewTopic, dry_run: DryRun = False
) -> list[ChangeView]:
    changes = await lists.create_topic(
        console,
        actor,
        cluster,
        given.name,
        given.settings(),
        where=(given.cluster, given.broker),
        dry_run=dry_run,
    )
    return [ChangeView.of(change) for change in changes]


@router.get("/{topic}", summary="A topic with queues and groups", response_model=TopicView)
async def describe_topic(cluster: ClusterDep, topic: str) -> TopicDescription:
    return await cluster.topic(topic)


@router.patch("/{topic}", summary="Change a topic")
async def alter_topic(
    console: ConsoleDep,
    actor: ActorDep,
    cluster: ClusterDep,
    topic: str,
    given: TopicChange,
    dry_run: DryRun = False,
) -> list[ChangeView]:
    changes = await lists.alter_topic(console, actor, cluster, topic, given.settings(), dry_run=dry_run)
    return [ChangeView.of(change) for change in changes]


@router.delete("/{topic}", summary="Delete a topic with its messages")
async def delete_topic(
    console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, topic: str, dry_run: DryRun = False
) -> list[ChangeView]:
    changes = await lists.delete_topic(console, actor, cluster, topic, dry_run=dry_run)
    return [ChangeView.of(change) for change in changes]


@router.get("/{topic}/route", summary="The route, in RocketMQ's names")
async def route(cluster: ClusterDep, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = (await cluster.admin.topics.route(topic)).to_json()
    return found


@router.post("/{topic}/messages", summary="Send a message", status_code=201, response_model=ReceiptView)
async def send(console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, topic: str, given: NewMessage) -> object:
    action = Action("send message", topic, Role.OPERATOR)
    return await console.change(actor, cluster, action, lambda: lists.send(cluster, topic, **given.model_dump()))
