"""Messages: searches, one message, its trace, sending again; dead letters."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from orbitmq.admin.errors import NotFoundError
from orbitmq.admin.message.dead_letters import DeadLetterFilter, DeadLetterQueue
from orbitmq.dashboard.clusters import ManagedCluster
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.rest.context import ActorDep, ClusterDep, ConsoleDep, DryRun, View
from orbitmq.dashboard.rest.management import JobView
from orbitmq.dashboard.rest.topics import ReceiptView
from orbitmq.dashboard.rest.views import MessageView
from orbitmq.dashboard.subjects import dead_letters as dead
from orbitmq.dashboard.subjects import messages as reading
from orbitmq.dashboard.subjects.messages import MessageText, Search

router = APIRouter(prefix="/clusters/{cluster}", tags=["messages"])

Limit = Annotated[int, Query(ge=1, le=reading.MAX_MESSAGES)]


class Edited(BaseModel):
    """Replacements when a message is sent again; the rest stays as it was stored."""

    topic: str = ""
    body: Annotated[str | None, Field(max_length=4 << 20)] = None
    tags: str | None = None
    keys: str | None = None


class TrackView(View):
    """The state of a message for a group."""

    group: str
    track: str
    reason: str


class DeadLetterQueueView(View):
    """The dead letters of a group."""

    group: str
    messages: int
    last_update_ms: int


class DeadLetterKindView(View):
    """Dead letters of the same topic and tag, given up after the same number of retries."""

    origin: str
    tag: str
    retries: int
    count: int
    first_ms: int
    last_ms: int


def _which(origin: str = "", tag: str | None = None, retries: int | None = None) -> DeadLetterFilter:
    return DeadLetterFilter(origin, tag, retries)


WhichDep = Annotated[DeadLetterFilter, Depends(_which)]


class ResendDead(BaseModel):
    """Which dead letters to send again: one, those of a time, or all; to their own topic or another."""

    message_id: str = ""
    topic: str = ""
    begin_ms: int | None = None
    end_ms: int | None = None
    limit: Annotated[int, Field(ge=1, le=dead.MAX_RESENT)] = dead.MAX_RESENT
    origin: str = ""
    tag: str | None = None
    retries: int | None = None


class ResentView(View):
    """The result for one dead letter."""

    offset_message_id: str
    topic: str
    message_id: str
    error: str


@router.get(
    "/topics/{topic}/messages",
    summary="The newest messages, or those of a time, newest first",
    response_model=list[MessageView],
)
async def search(
    cluster: ClusterDep,
    topic: str,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    tags: str = "*",
    sql: str = "",
    limit: Limit = 50,
    broker: str = "",
    queue: int | None = None,
) -> list[MessageText]:
    wanted = Search(
        topic=topic,
        begin_ms=begin_ms,
        end_ms=end_ms,
        tags=tags,
        sql=sql,
        limit=limit,
        broker_name=broker,
        queue_id=queue,
    )
    return reading.texts(await reading.find(cluster, wanted))


@router.get(
    "/topics/{topic}/messages/by-key/{key}",
    summary="Messages with a key, newest first",
    response_model=list[MessageView],
)
async def by_key(cluster: ClusterDep, topic: str, key: str, limit: Limit = 64) -> list[MessageText]:
    return reading.texts(await cluster.admin.messages.by_key(topic, key, limit=limit))


@router.get(
    "/topics/{topic}/queues/{broker}/{queue}/{offset}",
    summary="The message at an offset of a queue",
    response_model=MessageView,
)
async def by_offset(cluster: ClusterDep, topic: str, broker: str, queue: int, offset: int) -> MessageText:
    return reading.as_text(await cluster.admin.messages.by_offset(topic, broker, queue, offset))


@router.get(
    "/topics/{topic}/messages/{message_id}",
    summary="The message with an id of either kind",
    response_model=MessageView,
)
async def by_id(cluster: ClusterDep, topic: str, message_id: str) -> MessageText:
    return reading.as_text(await reading.by_id(cluster, topic, message_id))


@router.get(
    "/topics/{topic}/messages/{message_id}/groups",
    summary="Its state for each group of the topic",
    response_model=list[TrackView],
)
async def track(cluster: ClusterDep, topic: str, message_id: str) -> object:
    return await cluster.admin.delivery.track(await reading.by_id(cluster, topic, message_id))


class DecodedView(View):
    """A body by the schema of its topic: JSON text, or what is wrong with it."""

    format: str
    text: str
    error: str


@router.get(
    "/topics/{topic}/messages/{message_id}/decoded",
    summary="Its body by the Avro or Protobuf schema of the topic",
    response_model=DecodedView,
)
async def decoded(console: ConsoleDep, cluster: ClusterDep, topic: str, message_id: str) -> object:
    found = console.decoders.decode_message(await reading.by_id(cluster, topic, message_id))
    if found is None:
        raise NotFoundError("decoder of the topic", topic, "see --decoders")
    return found


@router.get("/messages/{message_id}/trace", summary="Its trace")
async def trace(cluster: ClusterDep, message_id: str, trace_topic: str = "") -> dict[str, Any]:
    found = await reading.trace_of(cluster, message_id, trace_topic)
    return reading.trace_json(found)


@router.post(
    "/topics/{topic}/messages/{message_id}/resend",
    summary="Send a message again",
    status_code=201,
    response_model=ReceiptView,
)
async def resend(
    console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, topic: str, message_id: str, given: Edited
) -> object:
    async def work() -> object:
        message = await reading.by_id(cluster, topic, message_id)
        body = None if given.body is None else given.body.encode()
        return await cluster.admin.delivery.resend(
            message, topic=given.topic, body=body, tags=given.tags, keys=given.keys
        )

    return await console.change(actor, cluster, Action("resend message", f"{topic} {message_id}"), work)


@router.get("/dead-letters", summary="Groups with dead letters", response_model=list[DeadLetterQueueView])
async def list_dead_letters(cluster: ClusterDep) -> list[DeadLetterQueue]:
    return await cluster.dead_letters()


@router.get(
    "/dead-letters/{group}/kinds",
    summary="Its dead letters by topic, tag and retries",
    response_model=list[DeadLetterKindView],
)
async def dead_letter_kinds(
    cluster: ClusterDep, group: str, begin_ms: int | None = None, end_ms: int | None = None
) -> object:
    return await cluster.admin.dead_letters.kinds(group, begin_ms=begin_ms, end_ms=end_ms)


@router.get("/dead-letters/{group}", summary="The dead letters of a group", response_model=list[MessageView])
async def read_dead_letters(
    cluster: ClusterDep,
    group: str,
    which: WhichDep,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    limit: Limit = 100,
) -> list[MessageText]:
    letters = dead.read(cluster, group, begin_ms=begin_ms, end_ms=end_ms, limit=limit, which=which)
    found = [one async for one in letters]
    return reading.texts(found)


@router.get("/dead-letters/{group}/export", summary="All dead letters of a group, a JSON object a line")
async def export_dead_letters(
    cluster: ClusterDep,
    group: str,
    which: WhichDep,
    begin_ms: int | None = None,
    end_ms: int | None = None,
) -> StreamingResponse:
    await cluster.admin.topics.route(dead.topic_of(group))
    name = "".join(character if character.isalnum() else "_" for character in group)[:100]
    return StreamingResponse(
        _lines(cluster, group, (begin_ms, end_ms), which),
        media_type="application/x-ndjson",
        headers={"content-disposition": f'attachment; filename="dead-letters-{name}.jsonl"'},
    )


async def _lines(
    cluster: ManagedCluster, group: str, span: tuple[int | None, int | None], which: DeadLetterFilter
) -> AsyncIterator[bytes]:
    begin, end = span
    letters = dead.read(cluster, group, begin_ms=begin, end_ms=end, limit=dead.MAX_EXPORTED, which=which)
    async for message in letters:
        view = MessageView.model_validate(reading.as_text(message, 8 << 20))
        yield json.dumps(view.model_dump(), ensure_ascii=False).encode() + b"\n"


@router.post(
    "/dead-letters/{group}/resend-job",
    summary="Send dead letters again in the background",
    status_code=202,
    response_model=JobView,
)
async def resend_dead_letters_in_background(
    console: ConsoleDep, actor: ActorDep, cluster: ClusterDep, group: str, given: ResendDead
) -> object:
    which = _arguments(given)
    total = len(await dead.resend(console, actor, cluster, group, which, dry_run=True))
    return dead.resend_in_background(console, actor, cluster, group, which, total)


def _arguments(given: ResendDead) -> dict[str, Any]:
    which = given.model_dump(exclude={"origin", "tag", "retries"})
    return {**which, "which": DeadLetterFilter(given.origin, given.tag, given.retries)}


@router.post("/dead-letters/{group}/resend", summary="Send dead letters again", response_model=list[ResentView])
async def resend_dead_letters(
    console: ConsoleDep,
    actor: ActorDep,
    cluster: ClusterDep,
    group: str,
    given: ResendDead,
    dry_run: DryRun = False,
) -> object:
    return await dead.resend(console, actor, cluster, group, _arguments(given), dry_run=dry_run)
