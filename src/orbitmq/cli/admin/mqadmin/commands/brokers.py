"""Commands of ``mqadmin`` about brokers and clusters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.admin.cluster.topology import MASTER
from orbitmq.admin.errors import AdminError, InvalidRequestError
from orbitmq.cli.admin.mqadmin.java import date_text, settings_order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from orbitmq.admin.cluster.runtime import BrokerRuntime, BrokerStatus, ReplicationStatus
    from orbitmq.cli.admin.mqadmin.call import Call


async def repeated(call: Call, work: Callable[[], Awaitable[None]], default: int = 0) -> None:
    """Run once, or with ``-i`` every so many seconds until Ctrl-C."""
    await work()
    while call.flag("i"):
        await asyncio.sleep(max(1, call.number("i", default)))
        call.print()
        await work()


async def cluster_list(call: Call) -> None:
    async def work() -> None:
        statuses = await call.admin.brokers.all(call.get("c"))
        (_print_totals if call.flag("m") else _print_brokers)(call, statuses)

    await repeated(call, work)


def _print_brokers(call: Call, statuses: list[BrokerStatus]) -> None:
    line = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:<22}  {:>11}  {:<12}  {:<8}  {:<10}".format
    call.print(
        line(
            *("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)"),
            *("#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED"),
        )
    )
    now = call.admin.session.now_ms()
    for status in statuses:
        broker, runtime = status.broker, status.runtime
        place = (broker.cluster, broker.broker_name, broker.broker_id, broker.address)
        table: Mapping[str, str] = {} if runtime is None else runtime.table
        found = table.get
        put = float((found("putTps", "").split() or ["0"])[0])
        get = float((found("getTransferredTps", "").split() or ["0"])[0])
        load = f"({found('sendThreadPoolQueueSize', '')},{found('sendThreadPoolQueueHeadWaitTimeMills', '')}ms)"
        pulls = f"{found('pullThreadPoolQueueSize', '')},{found('pullThreadPoolQueueHeadWaitTimeMills', '')}ms"
        acks = f"{found('ackThreadPoolQueueSize', 'N')},{found('ackThreadPoolQueueHeadWaitTimeMills', 'N')}ms"
        call.print(
            line(
                *place,
                found("brokerVersionDesc", ""),
                f"{put:9.2f}{load}",
                f"{get:9.2f}({pulls}|{acks})",
                _timer(table),
                found("pageCacheLockTimeMills", ""),
                f"{_hours(runtime, now):.2f}",
                f"{float(found('commitLogDiskRatio', '0') or 0):.4f}",
                found("brokerActive", "false"),
            )
        )


def _timer(table: Mapping[str, str]) -> str:
    found = table.get
    waiting = int(found("timerCongestNum", "0") or 0) / 10000
    speeds = [float(found(name, "0") or 0) for name in ("timerEnqueueTps", "timerDequeueTps")]
    behind = f"{found('timerReadBehind', '0')}-{found('timerOffsetBehind', '0')}"
    return f"{behind}({waiting:.1f}w, {speeds[0]:.1f}, {speeds[1]:.1f})"


def _hours(runtime: BrokerRuntime | None, now: int) -> float:
    earliest = 0 if runtime is None else runtime.earliest_message_ms
    return 0.0 if earliest <= 0 else (now - earliest) / 3_600_000


def _print_totals(call: Call, statuses: list[BrokerStatus]) -> None:
    line = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}".format
    titles = ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    call.print(line(*titles))
    for status in statuses:
        if not status.broker.is_master:
            continue
        one = status.runtime
        figures = (0, 0, 0, 0)
        if one is not None:
            figures = (one.puts_yesterday, one.gets_yesterday, one.puts_today, one.gets_today)
        call.print(line(status.broker.cluster, status.broker.broker_name, *figures))


async def broker_status(call: Call) -> None:
    for broker in await call.brokers(slaves=True):
        runtime = await call.admin.brokers.runtime(broker.address)
        head = f"{broker.address:<24} " if call.flag("c") else ""
        for name, value in sorted(runtime.table.items()):
            call.print(f"{head}{name:<32}: {value}")


async def get_broker_config(call: Call) -> None:
    if call.flag("b"):
        await _print_settings(call, f"============{call['b']}============", call["b"])
        return
    brokers = await call.brokers(slaves=True)
    masters = {one.broker_name: one.address for one in brokers if one.broker_id == MASTER}
    for one in brokers:
        is_master = one.broker_id == MASTER
        title = "Master" if is_master else f"My Master: {masters.get(one.broker_name, '')}"
        kind = (
            f"============{title}: {one.address}============"
            if is_master
            else f"============{title}=====Slave: {one.address}============"
        )
        await _print_settings(call, kind, one.address)


async def _print_settings(call: Call, title: str, address: str) -> None:
    call.print(title)
    found = await call.admin.brokers.settings(address)
    for name in settings_order(found):
        call.print(f"{name:<50}=  {found[name]}")
    call.print()


async def update_broker_config(call: Call) -> None:
    values = {call["k"]: call["v"]}
    for broker in await call.brokers(slaves=call.boolean("a") or call.flag("a")):
        await call.admin.brokers.alter_settings(values, broker=broker.address)
        call.print(f"update broker config success, {broker.address}")


async def broker_consume_stats(call: Call) -> None:
    seconds = call.number("t", 50_000) / 1000
    (broker,) = await call.brokers()
    table = await call.admin.lag.broker_table(broker.address, ordered_only=call.boolean("o"), seconds=seconds)
    line = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}".format
    titles = (
        "#Topic",
        "#Group",
        "#Broker Name",
        "#QID",
        "#Broker Offset",
        "#Consumer Offset",
        "#Diff",
        "#LastTime",
    )
    call.print(line(*titles))
    level = call.number("l", 0)
    for entry in table.consume_stats_list:
        for group, parts in entry.items():
            for part in parts:
                for queue, one in sorted(part.offset_table.items()):
                    diff = one.broker_offset - one.consumer_offset
                    if diff < level:
                        continue
                    last = date_text(one.last_timestamp).partition(",")[0] if one.last_timestamp > 0 else "-"
                    place = (queue.topic, group, queue.broker_name, queue.queue_id)
                    call.print(line(*place, one.broker_offset, one.consumer_offset, diff, last))
    call.print(f"\nDiff Total: {table.total_diff}")


async def _maintain(call: Call, work: Callable[..., Awaitable[list[str]]]) -> None:
    try:
        if call.flag("b"):
            await work(broker=call["b"])
        else:
            await work(cluster=call.get("c"))
    except AdminError as error:
        call.print("false")
        raise error from None
    call.print("success")


async def clean_expired_cq(call: Call) -> None:
    await _maintain(call, call.admin.brokers.clean_expired_queues)


async def clean_unused_topic(call: Call) -> None:
    await _maintain(call, call.admin.brokers.clean_unused_topics)


async def delete_expired_commit_log(call: Call) -> None:
    await _maintain(call, call.admin.brokers.delete_expired_log)


async def ha_status(call: Call) -> None:
    async def work() -> None:
        for broker in await call.brokers(slaves=True):
            _print_replication(call, await call.admin.brokers.replication(broker.address))

    await repeated(call, work, 3)


def _print_replication(call: Call, found: ReplicationStatus) -> None:
    if found.is_master:
        call.print(f"\n#MasterAddr\t{found.address}")
        call.print(f"#MasterCommitLogMaxOffset\t{found.log_max_offset}")
        call.print(f"#SlaveNum\t{len(found.slaves)}\n#InSyncSlaveNum\t{found.in_sync_slaves}")
        line = "{:<32}  {:<16} {:>16} {:>16} {:>16} {:>16}".format
        titles = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere")
        call.print(line(*titles))
        for one in found.slaves:
            status = "OK" if one.is_in_sync else "Fall Behind"
            speed = f"{one.bytes_per_second / 1024:.2f}"
            call.print(line(one.address, one.ack_offset, one.lag_bytes, speed, status, one.transfer_from))
        return
    call.print(f"\n#MasterAddr\t{found.master_address}")
    call.print(f"#CommitLogMaxOffset\t{found.log_max_offset}")
    call.print(f"#TransferSpeed(KB/s)\t{found.bytes_per_second / 1024:.2f}")
    call.print(f"#LastReadTime\t{date_text(found.last_read_ms)}\n#LastWriteTime\t{date_text(found.last_write_ms)}")
    call.print(f"#MasterFlushOffset\t{found.master_flush_offset}")


async def get_broker_epoch(call: Call) -> None:
    async def work() -> None:
        for broker in await call.brokers(slaves=True):
            found = await call.admin.brokers.epochs(broker.address)
            call.print(
                f"\n#clusterName\t{found.cluster_name}\n#brokerName\t{found.broker_name}\n"
                f"#brokerAddr\t{broker.address}\n#brokerId\t{found.broker_id}"
            )
            for number, one in enumerate(found.epoch_list):
                end = found.max_offset if number == len(found.epoch_list) - 1 else one.end_offset
                call.print(
                    f"#Epoch: EpochEntry{{epoch={one.epoch}, startOffset={one.start_offset}, endOffset={end}}}"
                )

    await repeated(call, work, 3)


async def reset_master_flush_offset(call: Call) -> None:
    await call.admin.brokers.reset_master_flush_offset(call["b"], call.number("o"))
    call.print(f"reset master flush offset to {call['o']} success")


async def wipe_write_perm(call: Call) -> None:
    for address, count in (await call.admin.brokers.wipe_write_permission(call["b"])).items():
        call.print(f"wipe write perm of broker[{call['b']}] in name server[{address}] OK, {count}")


async def add_write_perm(call: Call) -> None:
    for address, count in (await call.admin.brokers.add_write_permission(call["b"])).items():
        call.print(f"add write perm of broker[{call['b']}] in name server[{address}] OK, {count}")


async def set_commit_log_read_ahead_mode(call: Call) -> None:
    for broker in await call.brokers():
        for address, text in (
            await call.admin.services.set_read_ahead(call.number("m"), broker=broker.address)
        ).items():
            call.print(f"set commitLog readAhead mode to {address}: {text}")


async def get_cold_data_flow_ctr_info(call: Call) -> None:
    for broker in await call.brokers():
        for address, text in (await call.admin.services.cold_data_info(broker=broker.address)).items():
            call.print(f"============{address}============\n{text}")


async def update_cold_data_flow_ctr_group_config(call: Call) -> None:
    for broker in await call.brokers():
        await call.admin.services.set_cold_data_threshold(call["g"], call.number("v"), broker=broker.address)
        call.print(f"updateColdDataFlowCtrGroupConfig success, {broker.address}")


async def remove_cold_data_flow_ctr_group_config(call: Call) -> None:
    for broker in await call.brokers():
        await call.admin.services.remove_cold_data_threshold(call["g"], broker=broker.address)
        call.print(f"remove broker cold read threshold success, {broker.address}")


async def switch_timer_engine(call: Call) -> None:
    from orbitmq.admin.cluster.services import TIMER_ENGINES  # noqa: PLC0415 - for this command only

    for broker in await call.brokers():
        await call.admin.services.switch_timer_engine(call["e"], broker=broker.address)
        call.print(f"switchTimerEngine to {TIMER_ENGINES[call['e']]} success, {broker.address}")


async def add_broker(call: Call) -> None:
    await call.admin.services.add_broker(call["c"], call["b"])
    call.print(f"add broker to {call['c']} success")


async def remove_broker(call: Call) -> None:
    parts = call["b"].split(":")
    if len(parts) != 3 or not parts[2].isdecimal():
        raise InvalidRequestError(f"the broker is cluster:name:id, not {call['b']!r}")
    await call.admin.services.remove_broker(call["c"], parts[0], parts[1], int(parts[2]))
    call.print(f"remove broker from {call['c']} success")


async def check_rocksdb_cq_write_progress(call: Call) -> None:
    found = await call.admin.services.check_rocksdb_queues(call.get("t"), call.number("cf", 0), cluster=call["c"])
    for address, text in found.items():
        call.print(f"{address}: {text}")


async def export_pop_record(call: Call) -> None:
    for broker in await call.brokers():
        if not call.boolean("d"):
            await call.admin.services.roll_back_pop_records(broker=broker.address)
        place = f"brokerName={broker.broker_name}, brokerAddr={broker.address}"
        call.print(f"Export broker records, {place}, dryRun={call.get('d', 'false')}")


async def rocks_db_config_to_json(call: Call) -> None:
    if call.flag("p"):
        raise InvalidRequestError("OrbitMQ's stores have no RocksDB: give -c or -b for Apache's brokers")
    kinds = [call["t"]] if call.flag("t") else ["topics", "subscriptionGroups", "consumerOffsets"]
    for broker in await call.brokers():
        await call.admin.services.export_rocksdb_settings(kinds, broker=broker.address)
        call.print(f"broker export done, brokerAddr={broker.address}")
