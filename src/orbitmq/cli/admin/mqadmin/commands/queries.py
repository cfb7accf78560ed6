"""Commands of ``mqadmin`` that look up messages and units of consume queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError, NotFoundError
from orbitmq.admin.message.messages import ALWAYS_MS
from orbitmq.admin.topic.topics import readers_of
from orbitmq.cli.admin.mqadmin.java import boolean, or_null
from orbitmq.cli.admin.mqadmin.java_errors import MQClientError
from orbitmq.cli.admin.mqadmin.message_text import print_message, print_tracks
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.call import Call
    from orbitmq.client.message import ReceivedMessage

NO_MESSAGE = 208
WINDOW_MS = 36 * 3_600_000
"""Apache's look-up by unique key covers 36 hours to both sides of now unless times are given."""


def _nothing() -> MQClientError:
    return MQClientError(NO_MESSAGE, "query message by key finished, but no message.")


async def query_msg_by_id(call: Call) -> None:
    for message_id in call["i"].split(","):
        try:
            message = await call.admin.messages.by_offset_id(message_id.strip(), topic=call["t"])
        except (NotFoundError, InvalidRequestError):
            found = await call.admin.messages.by_unique_key(call["t"], message_id.strip())
            if not found:
                raise _nothing() from None
            message = found[0]
        if call.flag("g"):
            await _consume(call, message)
        elif call.boolean("s"):
            receipt = await call.admin.delivery.resend(message, topic=message.topic)
            call.print(f"prepare resend msg. originalMsgId={message_id}")
            call.print(f"resend msg success, new msgId={receipt.message_id}")
        else:
            print_message(call, message)
            print_tracks(call, await call.admin.delivery.track(message))


async def _consume(call: Call, message: ReceivedMessage) -> None:
    """Have a member consume a message: the one of ``-d``, or each."""
    group = call["g"]
    clients = [call["d"]] if call.flag("d") else []
    if not clients:
        clients = [one.client_id for one in (await call.admin.members.connections(group)).members]
    for client in clients:
        done = await call.admin.messages.consume_directly(message, group, client)
        call.print(
            f"ConsumeMessageDirectlyResult [order={boolean(done.order)}, autoCommit={boolean(done.auto_commit)}, "
            f"consumeResult={or_null(done.consume_result)}, remark={or_null(done.remark)}, "
            f"spentTimeMills={done.spent_time_mills}]"
        )


async def query_msg_by_key(call: Call) -> None:
    topic, key = call["t"], call["k"]
    if call.get("p") == "T":
        raise InvalidRequestError("look-ups by tag need RocksDB's index, which this tool does not read: give a key")
    found = await call.admin.messages.by_key(
        topic, key, begin_ms=call.number("b", 0), end_ms=call.number("e", ALWAYS_MS), limit=call.number("m", 64)
    )
    if not found:
        raise _nothing()
    line = "{:<50} {:>4} {:>40} {:<200}".format
    call.print(line("#Message ID", "#QID", "#Offset", "#IndexKey"))
    for one in found:
        index = f"{one.store_timestamp}@{topic}@K@{key}@{one.message_id}@{one.record.physical_offset}"
        call.print(line(one.message_id, one.queue_id, one.queue_offset, index).rstrip())


async def query_msg_by_unique_key(call: Call) -> None:
    now = call.admin.session.now_ms()
    found = await call.admin.messages.by_unique_key(
        call["t"],
        call["i"],
        begin_ms=call.number("s", max(0, now - WINDOW_MS)),
        end_ms=call.number("e", now + WINDOW_MS),
    )
    if not found:
        raise _nothing()
    if call.flag("g"):
        await _consume(call, found[0])
        return
    for one in found if call.flag("a") else found[:1]:
        print_message(call, one, with_id=False)
        print_tracks(call, await call.admin.delivery.track(one))


async def query_msg_by_offset(call: Call) -> None:
    topic, broker, number = call["t"], call["b"], call.number("i")
    route = await call.admin.topics.route(call.get("r") or topic)
    address = readers_of(route).get(broker)
    if address is None:
        raise NotFoundError("broker", broker, f"the topic {topic} is not on it")
    page = await call.admin.messages.page(address, MessageQueue(topic, broker, number), call.number("o"), 1)
    if not page.messages:
        call.print(
            f"pull msg failed: status={page.status.name}, minOffset={page.min_offset}, maxOffset={page.max_offset}"
        )
        return
    message = page.messages[0]
    extra = {"MIN_OFFSET": str(page.min_offset), "MAX_OFFSET": str(page.max_offset)}
    print_message(call, message, extra=extra)
    print_tracks(call, await call.admin.delivery.track(message))


async def query_msg_trace_by_id(call: Call) -> None:
    from orbitmq.client.trace.encoding import Published  # noqa: PLC0415 - for this command only
    from orbitmq.client.trace.query import trace_message  # noqa: PLC0415 - for this command only

    found = await trace_message(
        ";".join(call.admin.config.name_servers),
        call["i"],
        topic=call.get("t", TRACE_TOPIC),
        most=call.number("c", 64),
        begin_ms=call.number("b", 0),
    )
    line = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}".format
    if found.published:
        call.print(line("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"))
    for event in found.published:
        one = event.record
        assert isinstance(one, Published)
        status = "success" if one.succeeded else "failed"
        call.print(line("Pub", one.group, event.client_host, one.timestamp, f"{one.cost_ms}ms", status))
    if found.attempts:
        call.print(line("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"))
    for attempt in found.attempts:
        ended = attempt.ended
        status = "unknown" if ended is None else "success" if ended.succeeded else "failed"
        cost = "" if ended is None else f"{ended.cost_ms}ms"
        call.print(line("Sub", attempt.group, attempt.client_host, attempt.began_ms, cost, status))


async def query_cq(call: Call) -> None:
    topic, number = call["t"], call.number("q")
    address = call.get("b") or next(iter(readers_of(await call.admin.topics.route(topic)).values()))
    found = await call.admin.messages.consume_queue(
        address, MessageQueue(topic, "", number), call.number("i"), call.number("c", 10), group=call.get("g")
    )
    if found.subscription_data is not None:
        call.print(f"Subscription data: \n{found.subscription_data.encode().decode()}")
        call.print("=" * 38)
    if found.filter_data:
        call.print(f"Filter data: \n{found.filter_data}")
        call.print("=" * 38)
    call.print(f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}")
    call.print("=" * 38)
    for index, one in enumerate(found.queue_data or (), call.number("i")):
        call.print(f"idx: {index}")
        call.print(
            f"ConsumeQueueData{{physicOffset={one.physic_offset}, physicSize={one.physic_size}, "
            f"tagsCode={one.tags_code}, extendDataJson='{or_null(one.extend_data_json)}', "
            f"bitMap='{or_null(one.bit_map)}', eval={boolean(one.eval)}, msg='{or_null(one.msg)}'}}"
        )
        call.print("=" * 38)
