"""Commands of ``mqadmin`` about consumer groups."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import orjson

from orbitmq.admin.errors import AdminError, InvalidRequestError
from orbitmq.admin.group.model import retry_topic
from orbitmq.cli.admin.mqadmin.java import date_text, group_fields, group_text
from orbitmq.protocol.bodies import GroupRetryPolicy, SubscriptionGroupConfig
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.admin.group.model import GroupLag, QueueLag
    from orbitmq.cli.admin.mqadmin.call import Call


async def update_sub_group(call: Call) -> None:
    config = SubscriptionGroupConfig(
        call["g"],
        consume_enable=call.boolean("s", True),
        consume_from_min_enable=call.boolean("m"),
        consume_broadcast_enable=call.boolean("d"),
        consume_message_orderly=call.boolean("o"),
        retry_queue_nums=call.number("q", 1),
        retry_max_times=call.number("r", 16),
        broker_id=call.number("i", 0),
        which_broker_when_consume_slowly=call.number("w", 1),
        notify_consumer_ids_changed_enable=call.boolean("a", True),
        attributes=call.attributes("attributes"),
    )
    if call.flag("p"):
        try:
            config.group_retry_policy = GroupRetryPolicy.from_json(orjson.loads(call["p"]))
        except (ProtocolError, orjson.JSONDecodeError) as error:
            raise InvalidRequestError(f"the retry policy is invalid: {error}") from error
    brokers = await call.brokers()
    for broker in brokers:
        await call.admin.groups.put(broker.address, config)
        call.print(f"create subscription group to {broker.address} success.")
    if brokers:
        call.print(group_text(config))


async def update_sub_group_list(call: Call) -> None:
    try:
        configs = [SubscriptionGroupConfig.from_json(one) for one in call.list_of("f")]
    except ProtocolError as error:
        raise InvalidRequestError(f"the file {call['f']} is invalid: {error}") from error
    for broker in await call.brokers():
        await call.admin.groups.create_many(configs, broker=broker.address)
        call.print(
            f"submit batch of group config to {broker.address} success, please check the result later.",
        )


async def delete_sub_group(call: Call) -> None:
    group = call["g"]
    for broker in await call.brokers():
        await call.admin.groups.delete_at(broker.address, group, remove_offsets=call.boolean("r"))
        where = "" if call.flag("b") else f" in cluster [{call['c']}]"
        call.print(f"delete subscription group [{group}] from broker [{broker.address}]{where} success.")
    if not call.flag("b"):
        for topic in (retry_topic(group), f"%DLQ%{group}"):
            await call.admin.topics.remove(topic, cluster=call["c"])


async def get_consumer_config(call: Call) -> None:
    group = call["g"]
    for broker in await call.admin.brokers.targets(for_change=False):
        for place in await call.admin.groups.settings(group, broker=broker.address):
            call.print(f"{'=' * 29}{broker.cluster}:{broker.broker_name}{'=' * 29}")
            for name, value in group_fields(place.config).items():
                call.print(f"{name:<40}=  {'' if value == 'null' else value}")


async def set_consume_mode(call: Call) -> None:
    mode = call["m"].upper()
    for broker in await call.brokers():
        await call.admin.groups.set_request_mode(
            broker.address, call["t"], call["g"], mode, call.number("q", 0) if call.flag("q") else 0
        )
        call.print(f"set consume mode to {broker.address} success.")
        call.print(
            f"topic[{call['t']}] group[{call['g']}] consume mode[{mode}] popShareQueueNum[{call.number('q', 0)}]"
        )


async def consumer_progress(call: Call) -> None:
    if call.flag("g"):
        lag = await call.admin.lag.of_group(
            call["g"],
            topic=call.get("t"),
            cluster=call.get("c"),
            with_clients=call.boolean("s"),
            may_be_empty=True,
        )
        _print_queues(call, lag, call.boolean("s"))
        return
    line = "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}".format
    call.print(line("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))
    for topic in await call.admin.topics.all_names():
        if topic.startswith(RETRY_PREFIX):
            await _print_group(call, topic.removeprefix(RETRY_PREFIX), line)


def _print_queues(call: Call, lag: GroupLag, with_clients: bool) -> None:
    titles = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    widths = [64, 32, 4, 20, 20]
    if with_clients:
        titles, widths = [*titles, "#Client IP"], [*widths, 20]
    titles += ["#Diff", "#Inflight", "#LastTime"]
    widths += [20, 20, 0]
    call.print("  ".join(f"{title:<{width}}" for title, width in zip(titles, widths, strict=True)))
    for one in lag.queues:
        cells = [one.topic, one.broker_name, one.queue_id, one.broker_offset, one.consumer_offset]
        if with_clients:
            cells.append(one.client_id.partition("@")[0] or "N/A")
        last = date_text(one.last_timestamp_ms).partition(",")[0] if one.last_timestamp_ms > 0 else "N/A"
        cells += [one.broker_offset - one.consumer_offset, _inflight(one), last]
        call.print("  ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True)))
    call.print(f"\nConsume TPS: {lag.consume_tps:.2f}")
    call.print(f"Consume Diff Total: {sum(one.broker_offset - one.consumer_offset for one in lag.queues)}")
    call.print(f"Consume Inflight Total: {sum(map(_inflight, lag.queues))}")


def _inflight(one: QueueLag) -> int:
    return one.pull_offset - one.consumer_offset


async def _print_group(call: Call, group: str, line: Callable[..., str]) -> None:
    count, version, kind, model = 0, "OFFLINE", "", ""
    lag: GroupLag | None = None
    with contextlib.suppress(AdminError):
        lag = await call.admin.lag.of_group(group, may_be_empty=True)
    try:
        found = await call.admin.members.connections(group)
        count = len(found.members)
        version = min((one.version for one in found.members), default="OFFLINE")
        kind = "PULL" if found.consume_type == "CONSUME_ACTIVELY" else "PUSH"
        model = found.message_model
    except AdminError:
        pass
    tps = 0 if lag is None else int(lag.consume_tps)
    total = 0 if lag is None else sum(one.broker_offset - one.consumer_offset for one in lag.queues)
    call.print(line(group, count, version, kind, model, tps, total))
