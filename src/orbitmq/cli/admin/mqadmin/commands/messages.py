"""Commands of ``mqadmin`` that read queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.admin.group.offsets import queues_in
from orbitmq.admin.message.reader import PULL_BATCH
from orbitmq.admin.topic.topics import readers_of
from orbitmq.cli.admin.mqadmin.commands.offsets import timestamp
from orbitmq.cli.admin.mqadmin.java import queue_text, queues_in_order
from orbitmq.cli.admin.mqadmin.message_text import body_of, message_text, text_of
from orbitmq.client.consumer.pull_response import PullStatus
from orbitmq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.admin.message.reader import Page
    from orbitmq.cli.admin.mqadmin.call import Call


async def print_msg(call: Call) -> None:
    topic = call["t"]
    route = await call.admin.topics.route(call.get("l") or topic)
    addresses = readers_of(route)
    for queue in queues_in_order(queues_in(topic, route)):
        address = addresses[queue.broker_name]
        low, high = await _span(call, address, queue, "b", "e")
        call.print(f"minOffset={low}, maxOffset={high}, {queue_text(queue)}")
        async for page in _pages(call, address, queue, low, high):
            if page.status is PullStatus.FOUND:
                _print_page(call, page, high, call.get("c", "UTF-8"), with_body=call.boolean("d"))
            else:
                where = f"status={page.status.name}, offset={page.next_offset}"
                call.print(f"{queue_text(queue)} no matched msg. {where}")
        call.print("-" * 56)


async def print_msg_by_queue(call: Call) -> None:
    topic, number = call["t"], call.number("i")
    queue = MessageQueue(topic, call["a"], number)
    address = await call.admin.messages.address_of(topic, call["a"])
    low, high = await _span(call, address, queue, "b", "e")
    tags: dict[str, int] = {}
    async for page in _pages(call, address, queue, low, high):
        if call.boolean("f"):
            for one in page.messages:
                if one.tags:
                    tags[one.tags] = tags.get(one.tags, 0) + 1
        if call.boolean("p"):
            _print_page(call, page, high, call.get("c", "UTF-8"), with_body=call.boolean("d"))
    for tag, count in sorted(tags.items(), key=lambda one: -one[1]):
        call.print(f"Tag: {tag:<30} Count: {count}")


async def consume_message(call: Call) -> None:
    topic, count = call["t"], call.number("c", 128)
    if call.flag("o") and not (call.flag("b") and call.flag("i")):
        raise InvalidRequestError("an offset (-o) needs a broker (-b) and a queue id (-i)")
    route = await call.admin.topics.route(topic)
    addresses = readers_of(route)
    left = count
    for queue in queues_in_order(queues_in(topic, route)):
        if (
            call.get("b", queue.broker_name) != queue.broker_name
            or call.number("i", queue.queue_id) != queue.queue_id
        ):
            continue
        address = addresses[queue.broker_name]
        low, high = await _span(call, address, queue, "s", "e")
        at = max(low, call.number("o", low))
        left = await _consume_queue(call, address, queue, at, high, left)
        if left <= 0:
            return


async def _consume_queue(call: Call, address: str, queue: MessageQueue, at: int, high: int, left: int) -> int:
    """Print messages of a queue until its end or the wanted number. Returns the number that is left."""
    end = min(high, at + left)
    async for page in _pages(call, address, queue, at, end, at_least_once=True):
        if page.status is PullStatus.FOUND:
            call.print("Consume ok")
            _print_page(call, page, end, "UTF-8", with_body=True)
            left -= len([one for one in page.messages if one.queue_offset < end])
            at = page.next_offset
        else:
            return _finished(call, queue, page, left)
    if (left > 0 or call.flag("o")) and at >= high:
        page = await call.admin.messages.page(address, queue, at, 1)
        return _finished(call, queue, page, left)
    return left


def _finished(call: Call, queue: MessageQueue, page: Page, left: int) -> int:
    where = f"status={page.status.name}, offset={page.next_offset}"
    call.print(f"{queue_text(queue)} print msg finished. {where}")
    return left


async def _span(call: Call, address: str, queue: MessageQueue, begin: str, end: str) -> tuple[int, int]:
    now = call.admin.session.now_ms()
    first = timestamp(call[begin], now) if call.flag(begin) else None
    last = timestamp(call[end], now) if call.flag(end) else None
    return await call.admin.messages.span(address, queue, first, last)


async def _pages(
    call: Call, address: str, queue: MessageQueue, low: int, high: int, *, at_least_once: bool = False
) -> AsyncIterator[Page]:
    """The pulls of a range of a queue; the last one may reach behind it."""
    at = low
    tags = call.get("s", "*") if call.spec.name != "consumeMessage" else "*"
    while at < high or at_least_once:
        at_least_once = False
        count = min(PULL_BATCH, max(1, high - at))
        page = await call.admin.messages.page(address, queue, at, count, tags=tags)
        yield page
        if page.next_offset <= at:
            return
        at = page.next_offset


def _print_page(call: Call, page: Page, high: int, charset: str, *, with_body: bool) -> None:
    extra = {"MIN_OFFSET": str(page.min_offset), "MAX_OFFSET": str(page.max_offset)}
    for one in page.messages:
        if one.queue_offset < high:
            body = text_of(body_of(one), charset) if with_body else "NOT PRINT BODY"
            call.print(f"MSGID: {one.message_id} {message_text(one, extra)} BODY: {body}")
