"""Commands of ``mqadmin`` that export settings to files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.admin.errors import AdminError, RefusedError
from orbitmq.admin.tables import all_group_configs, all_topic_configs
from orbitmq.protocol.names import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC, is_system_group, is_system_topic
from orbitmq.protocol.versions import CURRENT_VERSION, version_name

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


async def export_metrics(call: Call) -> None:
    """Quotas, rates and clients of each master, and the sums of the cluster."""
    brokers = await call.brokers()
    if not brokers:
        return
    report: dict[str, Any] = {}
    tps = dict.fromkeys(("totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps"), 0.0)
    day = dict.fromkeys(("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum"), 0)
    for broker in brokers:
        found = await _broker_metrics(call, broker.address)
        report[broker.broker_name] = found
        for name, value in found["runtimeQuota"]["tps"].items():
            tps[f"total{name[0].upper()}{name[1:]}"] += value
        for name, value in found["runtimeQuota"]["oneDayNum"].items():
            day[name] += value
    total = {"totalTps": tps, "totalOneDayNum": day}
    file = _write(call, "metrics.json", {"evaluateReport": report, "totalData": total})
    call.print(f"export {file} success", end="")


async def _broker_metrics(call: Call, address: str) -> dict[str, Any]:
    admin = call.admin
    runtime = await admin.brokers.runtime(address)
    settings = await admin.brokers.settings(address)
    topics = await all_topic_configs(admin.session, address)
    groups = [name for name in await all_group_configs(admin.session, address) if not is_system_group(name)]
    table = runtime.table
    trans_tps, trans_day = await _stored(call, address, TRANSACTION_HALF_TOPIC)
    schedule_tps, schedule_day = await _stored(call, address, SCHEDULE_TOPIC)
    return {
        "runtimeEnv": {
            "cpuNum": settings.get("clientCallbackExecutorThreads"),
            "totalMemKBytes": table.get("totalMemKBytes"),
        },
        "runtimeQuota": {
            "diskRatio": {name: table.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
            "tps": {
                "normalInTps": _first(table.get("putTps")),
                "normalOutTps": _first(table.get("getTransferredTps") or table.get("getTransferedTps")),
                "transInTps": trans_tps,
                "scheduleInTps": schedule_tps,
            },
            "oneDayNum": {
                "normalOneDayInNum": runtime.puts_yesterday,
                "normalOneDayOutNum": runtime.gets_yesterday,
                "transOneDayInNum": trans_day,
                "scheduleOneDayInNum": schedule_day,
            },
            "messageAverageSize": table.get("putMessageAverageSize"),
            "topicSize": sum(
                not (is_system_topic(name) or name.startswith(("%RETRY%", "%DLQ%"))) for name in topics
            ),
            "groupSize": len(groups),
        },
        "runtimeVersion": {
            "rocketmqVersion": version_name(CURRENT_VERSION),
            "clientInfo": await _clients(call, groups),
        },
    }


def _first(text: str | None) -> float:
    """The first of the rates of a line: that of ten seconds."""
    words = (text or "").split()
    return float(words[0]) if words else 0.0


async def _stored(call: Call, address: str, topic: str) -> tuple[float, int]:
    """The messages that a broker stores in a topic of its own: a second, and in the last day."""
    try:
        found = await call.admin.brokers.statistics(address, "TOPIC_PUT_NUMS", topic)
    except RefusedError:
        # It has stored none yet.
        return 0.0, 0
    # The sum of the day counts from the second hour on, that of the hour from the second minute on.
    spans = (found.stats_day, found.stats_hour, found.stats_minute)
    day = next((span.sum for span in spans if span is not None and span.sum), 0)
    return 0.0 if found.stats_minute is None else found.stats_minute.tps, day


async def _clients(call: Call, groups: list[str]) -> list[str]:
    found = set()
    for group in groups:
        try:
            connections = await call.admin.members.connections(group)
        except AdminError:
            continue
        found |= {f"{one.language}%{one.version}" for one in connections.members}
    return sorted(found)


def _write(call: Call, name: str, value: dict[str, Any]) -> Path:
    folder = Path(call.get("f", FOLDER))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")
    return file
