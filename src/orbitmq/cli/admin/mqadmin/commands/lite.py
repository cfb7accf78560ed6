"""Commands of ``mqadmin`` about lite topics of RocketMQ 5.5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.admin.errors import AdminError
from orbitmq.admin.topic.topics import readers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.cli.admin.mqadmin.call import Call


def _print(call: Call, found: Mapping[str, Any]) -> None:
    for name, body in found.items():
        call.print(f"[{name}]")
        for key, value in body.to_json().items():
            call.print(f"{key:<32}: {value}")


async def get_broker_lite_info(call: Call) -> None:
    for broker in await call.brokers():
        _print(call, await call.admin.lite_topics.broker_info(broker=broker.address))


async def get_parent_topic_info(call: Call) -> None:
    _print(call, await call.admin.lite_topics.parent_topic(call["p"]))


async def get_lite_topic_info(call: Call) -> None:
    _print(call, await call.admin.lite_topics.lite_topic(call["p"], call["l"]))


async def get_lite_client_info(call: Call) -> None:
    _print(call, await call.admin.lite_topics.client(call["p"], call["g"], call["c"]))


async def get_lite_group_info(call: Call) -> None:
    found = await call.admin.lite_topics.group(
        call["p"], call["g"], lite_topic=call.get("l"), top=call.number("k", 20)
    )
    _print(call, found)


async def trigger_lite_dispatch(call: Call) -> None:
    call.print(f"Group And Topic Info: [{call['g']}] [{call['p']}]\n")
    for name, address in readers_of(await call.admin.topics.route(call["p"])).items():
        if call.get("b", name) != name:
            continue
        try:
            await call.admin.lite_topics.dispatch(address, call["g"], client_id=call.get("c"))
            result = "dispatched"
        except AdminError as error:
            result = f"error: {error}"
        call.print(f"{name:<50} {result}")
