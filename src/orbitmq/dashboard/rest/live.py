"""Clients, deferred messages, broker events and plots."""

import time
from typing import Annotated

from fastapi import APIRouter, Query

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.admin.group.model import Member
from orbitmq.admin.message.deferred import DeferredCounts, OpenTransactions
from orbitmq.dashboard.history.store import LEVELS, Series
from orbitmq.dashboard.rest.context import ClusterDep, ConsoleDep, View
from orbitmq.dashboard.rest.views import MemberView
from orbitmq.dashboard.subjects import live
from orbitmq.dashboard.subjects.pipelines import pipelines

router = APIRouter(prefix="/clusters/{cluster}", tags=["live"])

MAX_SPAN = LEVELS[-1].span


class DeferredView(View):
    """Messages of a broker that wait for their time."""

    broker_name: str
    timed: int
    timed_by_topic: dict[str, int]
    by_delay_level: dict[int, int]


class TransactionsView(View):
    """Half messages of a broker that are not settled."""

    broker_name: str
    half_messages: int
    unsettled: int


class WaitingMessageView(View):
    """A message that is delivered later. ``delay_level`` is 0 for a timed one."""

    due_ms: int
    topic: str
    broker_name: str
    message_id: str
    offset_message_id: str
    tags: str | None
    keys: tuple[str, ...]
    body_size: int
    stored_ms: int
    delay_level: int


class WaitingView(View):
    """Deferred messages, the next first. ``is_complete``: none was stored too long ago to be looked at."""

    messages: list[WaitingMessageView]
    is_complete: bool


class OpenTransactionView(View):
    """A half message whose transaction is open."""

    topic: str
    producer_group: str
    broker_name: str
    message_id: str
    offset_message_id: str
    keys: tuple[str, ...]
    born_ms: int
    stored_ms: int
    checks: int


class RunView(View):
    """A segment of an archive, or a batch of a streaming query."""

    number: int
    time_ms: int
    messages: int
    bytes: int
    is_done: bool


class TopicProgressView(View):
    """How far a pipeline is in a topic. ``left``: messages beyond that."""

    topic: str
    queues: int
    done: int
    left: int | None


class PipelineView(View):
    """An archive or a streaming query, with its newest runs first."""

    name: str
    kind: str
    place: str
    runs: list[RunView]
    run_count: int
    messages: int
    bytes: int
    topics: list[TopicProgressView]
    last_ms: int
    left: int | None
    held_by: str
    problem: str


class EventView(View):
    """An event of a broker's history."""

    timestamp_ms: int
    broker_name: str
    address: str
    sequence: int
    kind: str
    subject: str
    detail: str


class SeriesView(View):
    """Samples of a series, oldest first: ``times`` in seconds since the epoch, ``step`` seconds between two."""

    step: int
    times: list[int]
    values: list[float]


@router.get("/producers", summary="Connected producers by group", response_model=dict[str, list[MemberView]])
async def producers(cluster: ClusterDep) -> dict[str, list[Member]]:
    return await live.producers(cluster)


@router.get("/deferred", summary="Delayed and timed messages", response_model=list[DeferredView])
async def deferred(cluster: ClusterDep) -> list[DeferredCounts]:
    return await cluster.admin.deferred.counts()


@router.get("/transactions", summary="Transactions that wait", response_model=list[TransactionsView])
async def transactions(cluster: ClusterDep) -> list[OpenTransactions]:
    return await cluster.admin.deferred.transactions()


@router.get("/deferred/messages", summary="Deferred messages by their time", response_model=WaitingView)
async def waiting(cluster: ClusterDep) -> object:
    return await cluster.waiting()


@router.get(
    "/transactions/messages", summary="Half messages of open transactions", response_model=list[OpenTransactionView]
)
async def open_transactions(cluster: ClusterDep) -> object:
    return await cluster.open_transactions()


@router.get("/pipelines", summary="Archives and streaming queries", response_model=list[PipelineView])
async def list_pipelines(console: ConsoleDep, cluster: ClusterDep) -> object:
    return await pipelines(console.config, cluster)


@router.get("/events", summary="The history that OrbitMQ's brokers keep", response_model=list[EventView])
async def events(
    cluster: ClusterDep,
    since_ms: int = 0,
    kinds: Annotated[str, Query(description="kinds, separated by commas; empty for all")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> object:
    return (await live.events(cluster, since_ms=since_ms, kinds=kinds, limit=limit)).events


@router.get("/history/{series:path}", summary="Samples of a series", response_model=SeriesView)
async def history(
    console: ConsoleDep,
    cluster: ClusterDep,
    series: str,
    seconds: Annotated[int, Query(ge=60, le=MAX_SPAN, description="how far back")] = 3600,
) -> Series:
    if console.history is None:
        raise InvalidRequestError("this console keeps no history: --history-size is 0")
    now = int(time.time())
    return console.history.read(f"{cluster.name}/{series}", now - seconds, now)
