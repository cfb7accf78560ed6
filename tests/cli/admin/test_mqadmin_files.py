"""Commands of ``orbitmq mqadmin`` that Apache's recording does not have: files, modes, traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message, Producer

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.testing import ThreadCluster
    from support.cli.operator_shell import Shell

CLUSTER = ("-c", "DefaultCluster")


def test_topics_and_groups_come_from_files_and_go_to_files(shell: Shell, tmp_path: Path) -> None:
    here = ("-n", shell.name_server)
    topics = [{"topicName": f"listed{number}", "readQueueNums": 2, "writeQueueNums": 2} for number in range(2)]
    (tmp_path / "topics.json").write_text(json.dumps(topics))
    (tmp_path / "groups.json").write_text(json.dumps([{"groupName": "listed", "retryMaxTimes": 4}]))
    shell.ok("mqadmin", "updateTopicList", *here, *CLUSTER, "-f", tmp_path / "topics.json")
    shell.ok("mqadmin", "updateSubGroupList", *here, *CLUSTER, "-f", tmp_path / "groups.json")
    assert {"listed0", "listed1"} <= {one["name"] for one in shell.value("topics")}
    assert (
        "retryMaxTimes                           =  4"
        in shell.ok("mqadmin", "getConsumerConfig", *here, "-g", "listed").out
    )
    shell.ok("mqadmin", "exportMetadata", *here, *CLUSTER, "-f", tmp_path)
    exported = json.loads((tmp_path / "metadata.json").read_text())
    # Both brokers together.
    assert exported["topicConfigTable"]["listed0"]["writeQueueNums"] == 4
    assert exported["subscriptionGroupTable"]["listed"]["retryMaxTimes"] == 4
    shell.ok("mqadmin", "exportConfigs", *here, *CLUSTER, "-f", tmp_path)
    scale = json.loads((tmp_path / "configs.json").read_text())["clusterScale"]
    assert scale == {"namesrvSize": 1, "masterBrokerSize": 2, "slaveBrokerSize": 0}
    (tmp_path / "topics.json").write_text("{}")
    assert shell.run("mqadmin", "updateTopicList", *here, *CLUSTER, "-f", tmp_path / "topics.json").code == 1


def test_modes_settings_and_write_permissions_change(shell: Shell, cluster: ThreadCluster) -> None:
    here = ("-n", shell.name_server)
    shell.ok("topic", "create", "popped", "-q", 1)
    shell.ok("group", "create", "poppers")
    mode = ("-t", "popped", "-g", "poppers", "-m", "pop", "-q", "2")
    assert "consume mode[POP]" in shell.ok("mqadmin", "setConsumeMode", *here, *CLUSTER, *mode).out
    changed = shell.ok("mqadmin", "updateNamesrvConfig", *here, "-k", "clusterTest", "-v", "false")
    assert "update name server config success!" in changed.out
    assert shell.ok("mqadmin", "haStatus", *here, *CLUSTER).out.count("#SlaveNum\t0") == 2
    offline = shell.run("mqadmin", "consumerStatus", *here, "-g", "poppers")
    assert (offline.code, "CODE: 206" in offline.err) == (1, True)
    rates = shell.ok("mqadmin", "clusterRT", *here, "-a", "2", "-s", "16")
    assert [line.split()[-2:] for line in rates.out.splitlines()[1:]] == [["2", "0"], ["2", "0"]]
    lite = shell.run("mqadmin", "getBrokerLiteInfo", *here, *CLUSTER)
    assert lite.code in {0, 1}
    assert "Traceback" not in lite.err


def test_metrics_of_the_brokers_are_exported(shell: Shell, tmp_path: Path) -> None:
    arguments = ("-n", shell.name_server, "-c", "DefaultCluster", "-f", tmp_path)
    assert shell.ok("mqadmin", "exportMetrics", *arguments).out == f"export {tmp_path}/metrics.json success"
    found = json.loads((tmp_path / "metrics.json").read_bytes())
    assert found["evaluateReport"].keys() == {"broker-a", "broker-b"}
    quota = found["evaluateReport"]["broker-a"]["runtimeQuota"]
    assert quota["tps"].keys() == {"normalInTps", "normalOutTps", "transInTps", "scheduleInTps"}
    assert found["totalData"]["totalOneDayNum"]["normalOneDayInNum"] == 0


def test_a_trace_is_printed(shell: Shell) -> None:
    shell.ok("topic", "create", "traced", "-q", 1)
    with Producer(shell.name_server, group="tracers", enable_trace=True) as producer:
        sent = producer.send(Message("traced", "hello")).message_id
    while not (printed := shell.ok("mqadmin", "queryMsgTraceById", "-n", shell.name_server, "-i", sent).out):
        pass
    assert printed.splitlines()[1].split()[:2] == ["Pub", "tracers"]


@pytest.mark.parametrize("command", ["updateStaticTopic", "startMonitoring", "dumpCompactionLog"])
def test_what_does_not_work_says_what_to_use(shell: Shell, command: str) -> None:
    ran = shell.run("mqadmin", command)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"orbitmq: {command} does not work here: ")
