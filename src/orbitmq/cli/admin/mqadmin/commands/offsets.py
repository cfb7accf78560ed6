"""Commands of ``mqadmin`` that set offsets of groups."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

from orbitmq.admin.errors import ClientOfflineError, InvalidRequestError
from orbitmq.admin.group.offsets import ResetTo
from orbitmq.admin.topic.topics import readers_of
from orbitmq.cli.admin.mqadmin.java import boolean, queues_in_order
from orbitmq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.call import Call

_DATE = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})")


def timestamp(text: str, now_ms: int) -> int:
    """Milliseconds of ``now``, a number, or ``yyyy-MM-dd#HH:mm:ss:SSS``. Raises InvalidRequestError."""
    if text.lower() == "now":
        return now_ms
    if text.lstrip("-").isdecimal():
        return int(text)
    found = _DATE.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        return round(datetime.datetime.fromisoformat(f"{found[1]}T{found[2]}.{found[3]}").timestamp() * 1000)
    except ValueError:
        raise InvalidRequestError(
            f"the time is now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS, not {text!r}"
        ) from None


async def reset_offset_by_time(call: Call) -> None:
    group, topic, text = call["g"], call["t"], call["s"]
    time_ms = timestamp(text, call.admin.session.now_ms())
    if call.flag("b") and call.flag("q"):
        await _reset_one(call, group, topic, time_ms)
        return
    force = call.boolean("f", True)
    title = (
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], force[{boolean(force)}], "
        f"timestamp(string)[{text}], timestamp(long)[{time_ms}]"
    )
    await _reset(call, group, topic, time_ms, force, title)


async def _reset(call: Call, group: str, topic: str, time_ms: int, force: bool, title: str = "") -> None:
    route = await call.admin.topics.route(topic)
    found: dict[MessageQueue, int] = {}
    wanted = call.get("c")
    for data in route.broker_datas:
        address = readers_of(route).get(data.broker_name)
        if address is None or (wanted and data.cluster != wanted):
            continue
        try:
            found |= await call.admin.offsets.reset_at(address, group, topic, timestamp_ms=time_ms, force=force)
        except ClientOfflineError:
            await _reset_offline(call, group, topic, time_ms, force)
            return
    if title:
        call.print(title)
    line = "{:<40}  {:<40}  {:<40}".format
    call.print(line("#brokerName", "#queueId", "#offset"))
    for queue in queues_in_order(found):
        call.print(line(queue.broker_name, queue.queue_id, found[queue]))


async def _reset_offline(call: Call, group: str, topic: str, time_ms: int, force: bool) -> None:
    """Where brokers only relay to members, and none is connected: commit the offsets."""
    to = ResetTo(latest=True) if time_ms < 0 else ResetTo(time_ms=time_ms)
    line = "{:<20}  {:<20}  {:<20}  {:<20}  {:<20}  {:<20}".format
    titles = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#resetOffset")
    call.print(line(*titles))
    lag = await call.admin.lag.of_group(group, topic=topic, may_be_empty=True)
    ends = {(one.broker_name, one.queue_id): one.broker_offset for one in lag.queues}
    for change in await call.admin.offsets.reset(group, topic, to, force=force):
        place = (change.broker_name, change.queue_id)
        call.print(line(*place, ends.get(place, 0), change.before or 0, change.after, change.after))


async def _reset_one(call: Call, group: str, topic: str, time_ms: int) -> None:
    """One queue of one broker, to a time or to an offset."""
    (broker,) = await call.brokers()
    number = call.number("q")
    queue = MessageQueue(topic, broker.broker_name, number)
    call.print(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], queueId[{number}], "
        f"broker[{call['b']}], timestamp(string)[{call['s']}], timestamp(long)[{time_ms}]"
    )
    offset = (
        call.number("o") if call.flag("o") else await call.admin.offsets.at_time(broker.address, queue, time_ms)
    )
    await call.admin.offsets.reset_at(broker.address, group, topic, queue_id=number, offset=offset)
    call.print(f"reset consumer offset to {offset}")


async def skip_accumulated_message(call: Call) -> None:
    await _reset(call, call["g"], call["t"], -1, call.boolean("f", True))


async def clone_group_offset(call: Call) -> None:
    source, target, topic = call["s"], call["d"], call["t"]
    await call.admin.offsets.clone(source, target, topic)
    call.print(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")
