"""Commands of ``mqadmin`` about connected producers and consumers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.call import Call
    from orbitmq.protocol.bodies import ConsumerRunningInfo


async def consumer_connection(call: Call) -> None:
    found = await call.admin.members.connections(call["g"], broker=call.get("b"))
    line = "{:<36} {:<22} {:<10} {}".format
    call.print(line("#ClientId", "#ClientAddr", "#Language", "#Version"))
    for one in found.members:
        call.print(line(one.client_id, one.address, one.language, one.version))
    call.print("\nBelow is subscription:")
    line = "{:<20}  {}".format
    call.print(line("#Topic", "#SubExpression"))
    for subscription in found.subscriptions:
        call.print(line(subscription.topic, subscription.expression))
    call.print(f"\nConsumeType: {found.consume_type}")
    call.print(f"MessageModel: {found.message_model}")
    call.print(f"ConsumeFromWhere: {found.consume_from}")


async def producer_connection(call: Call) -> None:
    await call.admin.topics.route(call["t"])
    found = await call.admin.members.producers(call["g"])
    for number, one in enumerate(found, 1):
        call.print(f"{number:04d}  {one.client_id:<32} {one.address:<22} {one.language:<8} {one.version}")


async def producer(call: Call) -> None:
    found = await call.admin.brokers.producers(call["b"])
    if not found.data:
        call.print("no producer connected")
    for group, members in found.data.items():
        for one in members:
            call.print(
                f"producer group ({group}) instance : clientId={one.client_id},remoteIP={one.remote_ip}, "
                f"language={one.language}, version={one.version}, lastUpdateTimestamp={one.last_update_timestamp}"
            )


async def consumer_status(call: Call) -> None:
    group, stacks = call["g"], call.flag("s")
    found = await call.admin.members.connections(group, broker=call.get("b"))
    if call.flag("i"):
        info = await call.admin.members.running_info(group, call["i"], broker=call.get("b"), with_stacks=stacks)
        call.print(_info_text(info))
        return
    folder = Path(str(call.admin.session.now_ms()))
    call.print(f"{'#Index':<10}  {'#ClientId':<36}  {'#Version':<20}  #ConsumerRunningInfoFile")
    infos = {}
    for number, one in enumerate(found.members, 1):
        try:
            info = await call.admin.members.running_info(
                group, one.client_id, broker=call.get("b"), with_stacks=stacks
            )
        except AdminError as error:
            call.print(str(error))
            continue
        infos[one.client_id] = info
        file = _written(folder, one.client_id, _info_text(info))
        call.print(f"{number:<10d}  {one.client_id:<36}  {one.version:<20}  {file}")
    if infos:
        _print_findings(call, infos)


def _written(folder: Path, client_id: str, text: str) -> Path:
    """The file of one client. Its id was chosen by the client, and is not trusted as a path."""
    name = "".join(char if char.isalnum() or char in "@.#_-" else "_" for char in client_id)
    folder.mkdir(exist_ok=True)
    file = folder / name
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    return file


def _print_findings(call: Call, infos: dict[str, ConsumerRunningInfo]) -> None:
    subscriptions = {
        client: sorted((one.topic, one.sub_string) for one in info.subscription_set)
        for client, info in infos.items()
    }
    first = next(iter(subscriptions.values()))
    if all(one == first for one in subscriptions.values()):
        call.print("\n\nSame subscription in the same group of consumer")
    else:
        call.print("\n\nWARN: Different subscription in the same group of consumer!!!")
    held: set[object] = set()
    twice = False
    for info in infos.values():
        twice = twice or any(queue in held for queue in info.mq_table)
        held |= set(info.mq_table)
    call.print("\nRebalance Failed" if twice else "\nRebalance OK")


def _info_text(info: ConsumerRunningInfo) -> str:
    """The inner state of a consumer, as a file."""
    lines = ["#Consumer Properties#"]
    lines += [f"{name:<40}: {value}" for name, value in sorted(info.properties.items())]
    lines += ["", "", "#Consumer Subscription#"]
    for number, one in enumerate(sorted(info.subscription_set, key=lambda one: one.topic), 1):
        lines.append(
            f"{number:03d} Topic: {one.topic:<40} ClassFilter: {str(one.class_filter_mode).lower():<8} "
            f"SubExpression: {one.sub_string}"
        )
    lines += ["", "", "#Consumer Offset#", f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  #Consumer Offset"]
    for queue, held in sorted(info.mq_table.items()):
        lines.append(f"{queue.topic:<32}  {queue.broker_name:<32}  {queue.queue_id:<4}  {held.commit_offset:<20}")
    lines += ["", "", "#Consumer RT&TPS#"]
    lines.append(
        f"{'#Topic':<64}  {'#Pull RT':<14} {'#Pull TPS':<14} {'#Consume RT':<14} {'#ConsumeOK TPS':<14} "
        f"{'#ConsumeFailed TPS':<18} #ConsumeFailedMsgsInHour"
    )
    for topic, rates in sorted(info.status_table.items()):
        lines.append(
            f"{topic:<32}  {rates.pull_rt:14.2f} {rates.pull_tps:14.2f} {rates.consume_rt:14.2f} "
            f"{rates.consume_ok_tps:14.2f} {rates.consume_failed_tps:18.2f} {rates.consume_failed_msgs:25d}"
        )
    if info.jstack:
        lines += ["", "", "#Consumer jstack#", info.jstack]
    return "\n".join(lines) + "\n"
