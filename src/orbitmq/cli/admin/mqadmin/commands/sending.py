"""Commands of ``mqadmin`` that send messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, NotFoundError
from orbitmq.cli.admin.mqadmin.java import or_null, queue_text
from orbitmq.client.instance.routes import Route
from orbitmq.client.message import Message
from orbitmq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.call import Call
    from orbitmq.client.message import Receipt


async def send_message(call: Call) -> None:
    message = Message(call["t"], call.options["p"], tags=call.get("c") or None, keys=call.get("k"))
    queue = MessageQueue(call["t"], call["b"], call.number("i", 0)) if call.flag("b") else None
    receipt = await call.admin.delivery.send(message, queue=queue)
    line = "{:<32}  {:<4}  {:<20}    {}".format
    call.print(line("#Broker Name", "#QID", "#Send Result", "#MsgId"))
    call.print(line(receipt.queue.broker_name, receipt.queue.queue_id, receipt.status.name, receipt.message_id))


async def check_msg_send_rt(call: Call) -> None:
    topic, amount, size = call["t"], call.number("a", 100), call.number("s", 128)
    route = Route.of(topic, await call.admin.topics.route(topic))
    queues = list(route.publish_queues)
    if not queues:
        raise NotFoundError("queue for writing of the topic", topic)
    line = "{:<32}  {:<4}  {:<20}    {}".format
    call.print(line("#Broker Name", "#QID", "#Send Result", "#RT"))
    total = 0
    for number in range(amount):
        queue = queues[number % len(queues)]
        begun = call.admin.session.now_ms()
        ok = await _send_one(call, Message(topic, b"a" * size), queue)
        spent = call.admin.session.now_ms() - begun
        # The first one pays for the connection.
        total += spent if number else 0
        call.print(line(queue.broker_name, queue.queue_id, "true" if ok else "false", spent))
    call.print(f"Avg RT: {total / max(1, amount - 1):.2f}")


async def _send_one(call: Call, message: Message, queue: MessageQueue) -> bool:
    try:
        await call.admin.delivery.send(message, queue=queue)
    except AdminError:
        return False
    return True


async def send_msg_status(call: Call) -> None:
    broker, size, count = call["b"], call.number("s", 128), call.number("c", 50)
    # The first message, which is not counted, opens the connection.
    for number in range(count + 1):
        begun = call.admin.session.now_ms()
        receipt = await call.admin.delivery.send(Message(broker, b"a" * (size if number else 16)))
        if number:
            call.print(f"rt={call.admin.session.now_ms() - begun}ms, SendResult={_receipt_text(receipt)}")


def _receipt_text(receipt: Receipt) -> str:
    """``SendResult.toString``."""
    return (
        f"SendResult [sendStatus={receipt.status.name}, msgId={receipt.message_id}, "
        f"offsetMsgId={receipt.offset_message_id}, messageQueue={queue_text(receipt.queue)}, "
        f"queueOffset={receipt.queue_offset}, recallHandle={or_null(receipt.recall_handle)}]"
    )


async def cluster_rt(call: Call) -> None:
    amount, size, wanted = call.number("a", 100), call.number("s", 128), call.get("c")
    line = "{:<24}  {:<24}  {:<4}  {:<8}  {:<8}".format
    while True:
        call.print(line("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"))
        topology = await call.admin.brokers.topology()
        for cluster, names in topology.clusters.items():
            for name in names if wanted in {"", cluster} else ():
                spent = done = failed = 0
                for number in range(amount):
                    begun = call.admin.session.now_ms()
                    ok = await _send_one(call, Message(name, b"a" * size), MessageQueue(name, name, 0))
                    spent += call.admin.session.now_ms() - begun if number else 0
                    done, failed = done + ok, failed + (not ok)
                call.print(line(cluster, name, f"{spent / max(1, amount - 1):.2f}", done, failed))
        if not call.flag("i"):
            return
        await asyncio.sleep(max(1, call.number("i", 10)))
