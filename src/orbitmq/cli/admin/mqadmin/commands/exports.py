"""Commands of ``mqadmin`` that export settings to files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.admin.tables import all_group_configs, all_topic_configs
from orbitmq.protocol.names import is_system_group, is_system_topic

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.call import Call

FOLDER = "/tmp/rocketmq/export"  # noqa: S108 - the place of Apache's tool

KEPT = (
    *("brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums"),
    *("flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable"),
    *("traceOn", "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
)
"""Settings that Apache's export has."""


async def export_metadata(call: Call) -> None:
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    servers = set()
    brokers = await call.brokers()
    for broker in brokers:
        servers |= {broker.cluster, broker.broker_name}
        for name, config in (await all_topic_configs(call.admin.session, broker.address)).items():
            if call.flag("s") or not (
                is_system_topic(name) or name in servers or name.startswith(("%RETRY%", "%DLQ%"))
            ):
                _merge(topics, name, config.to_json(), ("readQueueNums", "writeQueueNums"))
        for name, group in (await all_group_configs(call.admin.session, broker.address)).items():
            if call.flag("s") or not is_system_group(name):
                _merge(groups, name, group.to_json(), ("retryQueueNums",))
    only_topics, only_groups = call.flag("t"), call.flag("g")
    content: dict[str, Any] = {}
    if not only_groups:
        content["topicConfigTable"] = topics
    if not only_topics or only_groups:
        content["subscriptionGroupTable"] = groups
    name = "topic.json" if only_topics else "subscriptionGroup.json" if only_groups else "metadata.json"
    if not brokers:
        return
    file = _write(call, name, {**content, "exportTime": round(time.time() * 1000)})
    call.print(f"export {file} success")


def _merge(table: dict[str, Any], name: str, values: dict[str, Any], sums: tuple[str, ...]) -> None:
    """One entry per name: the numbers of queues of all brokers are added, as Apache's export does."""
    if name in table:
        for key in sums:
            table[name][key] += values[key]
    else:
        table[name] = values


async def export_configs(call: Call) -> None:
    brokers = await call.brokers(slaves=True)
    if not brokers:
        return
    settings = {}
    for broker in brokers:
        found = await call.admin.brokers.settings(broker.address)
        settings[broker.broker_name if broker.is_master else f"{broker.broker_name}_{broker.broker_id}"] = {
            key: found[key] for key in KEPT if key in found
        }
    masters = sum(one.is_master for one in brokers)
    scale = {
        "namesrvSize": len(call.admin.config.name_servers),
        "masterBrokerSize": masters,
        "slaveBrokerSize": len(brokers) - masters,
    }
    file = _write(call, "configs.json", {"brokerConfigs": settings, "clusterScale": scale})
    call.print(f"export {file} success")


def _write(call: Call, name: str, value: dict[str, Any]) -> Path:
    folder = Path(call.get("f", FOLDER))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")
    return file
