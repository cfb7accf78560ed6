"""Commands of ``mqadmin`` about topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from orbitmq.admin.errors import AdminError, InvalidRequestError, NotFoundError, RefusedError
from orbitmq.admin.group.offsets import queues_in
from orbitmq.admin.topic.model import TopicSettings
from orbitmq.cli.admin.mqadmin.java import boolean, date_text, map_text, queues_in_order, topic_text
from orbitmq.cli.admin.mqadmin.java_errors import MQClientError, exception_text
from orbitmq.protocol.bodies import MessageQueue, TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import DLQ_PREFIX, ORDER_TOPIC_NAMESPACE, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.cli.admin.mqadmin.call import Call
    from orbitmq.protocol.bodies import BrokerStatsData, TopicRouteData


async def update_topic(call: Call) -> None:
    attributes = call.attributes("a")
    config = TopicConfig(
        call["t"],
        call.number("r", 8),
        call.number("w", 8),
        call.number("p", 6),
        topic_sys_flag=int(call.boolean("u")) + 2 * int(call.boolean("s")),
        order=call.boolean("o"),
        attributes=attributes,
    )
    brokers = await call.brokers()
    if call.flag("b") and config.order:
        await _print_order_configuration(call, config)
    for broker in brokers:
        await call.admin.topics.put(broker.address, config, attributes=call.get("a"))
    if config.order and not call.flag("b"):
        text = ";".join(sorted(f"{one.broker_name}:{config.write_queue_nums}" for one in brokers))
        await call.admin.topics.set_order_configuration(config.topic_name, text)
        call.print(f"set cluster orderConf. isOrder=true, orderConf=[{text}]")
    for broker in brokers:
        call.print(f"create topic to {broker.address} success.")
    call.print(topic_text(config, attributes))


async def _print_order_configuration(call: Call, config: TopicConfig) -> None:
    """Add a broker to the order configuration. Apache's tool prints the exception of a missing one."""
    (broker,) = await call.brokers()
    known = await call.admin.name_servers.get(ORDER_TOPIC_NAMESPACE, config.topic_name)
    own = f"{broker.broker_name}:{config.write_queue_nums}"
    if known is None:
        error = _no_order_configuration(config.topic_name)
        call.print(exception_text(error))
    others = [part for part in (known or "").split(";") if part and part.partition(":")[0] != broker.broker_name]
    await call.admin.topics.set_order_configuration(config.topic_name, ";".join([*others, own]))
    call.print(f"set broker orderConf. isOrder={boolean(config.order)}, orderConf=[{own}]")


def _no_order_configuration(topic: str) -> MQClientError:
    text = f"No config item, Namespace: {ORDER_TOPIC_NAMESPACE} Key: {topic}"
    return MQClientError(ResponseCode.QUERY_NOT_FOUND, text)


async def update_topic_list(call: Call) -> None:
    try:
        configs = [TopicConfig.from_json(one) for one in call.list_of("f")]
    except ProtocolError as error:
        raise InvalidRequestError(f"the file {call['f']} is invalid: {error}") from error
    for broker in await call.brokers():
        await call.admin.topics.create_many(configs, broker=broker.address)
        call.print(
            f"submit batch of topic config to {broker.address} success, please check the result later.",
        )


async def delete_topic(call: Call) -> None:
    topic, cluster = call["t"], call["c"]
    if await call.brokers():
        await call.admin.topics.delete(topic, cluster=cluster)
        call.print(f"delete topic [{topic}] from cluster [{cluster}] success.")
        call.print(f"delete topic [{topic}] from NameServer success.")


async def update_topic_perm(call: Call) -> None:
    topic, perm = call["t"], call.number("p")
    route = await call.admin.topics.route(topic)
    known = {data.broker_name: data for data in route.queue_datas}
    for broker in await call.brokers():
        data = known.get(broker.broker_name) or (route.queue_datas[0] if route.queue_datas else None)
        before = 6 if data is None else data.perm
        if before == perm:
            call.print("new perm equals to the old one!")
            continue
        await call.admin.topics.alter(topic, TopicSettings(perm=perm), broker=broker.address)
        call.print(f"update topic perm from {before} to {perm} in {broker.address} success.")


async def topic_list(call: Call) -> None:
    names = await call.admin.topics.all_names()
    if not call.flag("c"):
        call.print("\n".join(names))
        return
    call.print(f"{'#Cluster Name':<20}  {'#Topic':<64}  {'#Consumer Group':<64}")
    for topic in names:
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        clusters, groups = [""], [""]
        try:
            route = await call.admin.topics.route(topic)
            clusters = sorted({data.cluster for data in route.broker_datas}) or [""]
            groups = await call.admin.topics.groups(topic, route) or [""]
        except AdminError:
            pass
        for cluster in clusters:
            for group in groups:
                call.print(f"{cluster:<20}  {topic:<64}  {group:<64}")


async def topic_route(call: Call) -> None:
    route = await call.admin.topics.route(call["t"])
    if not call.flag("l"):
        call.print(route.encode(pretty=True).decode())
        return
    line = "{:<45}  {:<32}  {:<50}  {:<10}  {:<11}  {:<5}".format
    call.print(line("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"))
    queues = {data.broker_name: data for data in route.queue_datas}
    read = write = 0
    for data in sorted(route.broker_datas, key=lambda one: one.broker_name):
        here = queues.get(data.broker_name)
        if here is None:
            continue
        read, write = read + here.read_queue_nums, write + here.write_queue_nums
        addresses = map_text({str(number): address for number, address in data.broker_addrs.items()})
        call.print(
            line(data.cluster, data.broker_name, addresses, here.read_queue_nums, here.write_queue_nums, here.perm)
        )
    call.print("-" * 158)
    call.print(line("Total:", len(queues), "", read, write, ""))


async def topic_status(call: Call) -> None:
    stats = await call.admin.topics.stats(call["t"])
    line = "{:<32}  {:<4}  {:<20}  {:<20}    {}".format
    call.print(line("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"))
    for queue, ends in sorted(stats.offset_table.items()):
        updated = date_text(ends.last_update_timestamp) if ends.last_update_timestamp > 0 else ""
        call.print(line(queue.broker_name, queue.queue_id, ends.min_offset, ends.max_offset, updated))
    call.print(f"\nTopic Put TPS: {stats.topic_put_tps}")


async def topic_cluster_list(call: Call) -> None:
    for cluster in await call.admin.topics.clusters(call["t"]):
        call.print(cluster)


async def update_order_conf(call: Call) -> None:
    topic, method, text = call["t"], call["m"], call.get("v")
    if method == "get":
        found = await call.admin.topics.order_configuration(topic)
        if found is None:
            raise _no_order_configuration(topic)
        call.print(f"get orderConf success. topic=[{topic}], orderConf=[{found}] ")
    elif method == "put":
        if not text:
            raise InvalidRequestError("please set orderConf with option -v.")
        await call.admin.topics.set_order_configuration(topic, text)
        call.print(f"update orderConf success. topic=[{topic}], orderConf=[{text}]")
    elif method == "delete":
        await call.admin.topics.set_order_configuration(topic, "")
        call.print(f"delete orderConf success. topic=[{topic}]")
    else:
        raise InvalidRequestError("the method is put, get or delete")


async def allocate_mq(call: Call) -> None:
    topic = call["t"]
    clients = [part.strip() for part in call["i"].split(",") if part.strip()]
    route = await call.admin.topics.route(topic)
    queues = queues_in_order(queues_in(topic, route))
    found = {client: _average(queues, clients, client) for client in clients}
    fields = {
        client: [{"brokerName": q.broker_name, "queueId": q.queue_id, "topic": q.topic} for q in mine]
        for client, mine in found.items()
    }
    call.print(orjson.dumps({"result": fields}).decode())


def _average(queues: list[MessageQueue], clients: list[str], client: str) -> list[MessageQueue]:
    """The average allocation of RocketMQ's consumers: earlier clients get one more."""
    index, share, rest = clients.index(client), len(queues) // len(clients), len(queues) % len(clients)
    size = share + (index < rest)
    start = index * size if index < rest else index * share + rest
    return queues[start : start + size]


async def stats_all(call: Call) -> None:
    line = "{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}".format
    titles = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    call.print(line(*titles))
    wanted = call.get("t")
    for topic in await call.admin.topics.all_names():
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or (wanted and topic != wanted):
            continue
        try:
            await _print_stats(call, topic, line)
        except AdminError:
            # As Apache's tool: a topic whose broker does not respond is left out.
            continue


async def _print_stats(call: Call, topic: str, line: Callable[..., str]) -> None:
    route = await call.admin.topics.route(topic)
    groups = await call.admin.topics.groups(topic, route)
    incoming = list((await call.admin.topics.traffic(topic)).values())
    in_tps = sum(_tps(data) for data in incoming)
    in_day = sum(_day(data) for data in incoming)
    if not groups:
        if not call.flag("a") or in_day > 0:
            call.print(line(topic, "", 0, f"{in_tps:.2f}", "", in_day, "NO_CONSUMER"))
        return
    for group in groups:
        out_tps, out_day = await _outgoing(call, topic, group, route)
        try:
            lag = (await call.admin.lag.of_group(group, topic=topic, may_be_empty=True)).lag
        except AdminError:
            lag = 0
        if not call.flag("a") or in_day > 0 or out_day > 0:
            call.print(line(topic, group, lag, f"{in_tps:.2f}", f"{out_tps:.2f}", in_day, out_day))


async def _outgoing(call: Call, topic: str, group: str, route: TopicRouteData) -> tuple[float, int]:
    tps, day = 0.0, 0
    for data in route.broker_datas:
        address = data.broker_addrs.get(0)
        if address is None:
            continue
        try:
            found = await call.admin.brokers.statistics(address, "GROUP_GET_NUMS", f"{topic}@{group}")
        except (RefusedError, NotFoundError):
            continue
        tps, day = tps + _tps(found), day + _day(found)
    return tps, day


def _tps(data: BrokerStatsData) -> float:
    return 0.0 if data.stats_minute is None else data.stats_minute.tps


def _day(data: BrokerStatsData) -> int:
    """Messages of the last day, or of the longest time that is counted yet."""
    for item in (data.stats_day, data.stats_hour, data.stats_minute):
        if item is not None and item.sum:
            return item.sum
    return 0
