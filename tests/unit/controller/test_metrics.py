"""Metrics of a controller: Apache's names and labels, on an endpoint for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.controller import ControllerConfig
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.codes import RequestCode
from support.controller_harness import CLUSTER, GROUP, QuietController
from support.metrics.endpoint_text import fetch, series_of, values

OWN: dict[str, Any] = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}


async def test_a_controller_shows_its_role_its_brokers_and_what_it_did() -> None:
    async with QuietController(**OWN) as server:
        await server.join(1)
        await server.join(2)
        await server.elect(1)
        await server.elect(1)
        await server.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName="unknown")
        port = server.controller.metrics.port
        assert port is not None
        text = await asyncio.to_thread(fetch, port)
    found = series_of(text)
    assert values(found, "role") == {(): 3}
    assert values(found, "active_broker_num", "cluster", "broker_set") == {(CLUSTER, GROUP): 2}
    elections = values(found, "election_total", "election_result")
    assert elections == {("new_master_elected",): 1, ("keep_current_master",): 1}
    requests = values(found, "request_total", "request_type", "request_handle_status")
    assert requests["CONTROLLER_ELECT_MASTER", "success"] == 2
    assert requests["CONTROLLER_BROKER_HEARTBEAT", "success"] == 2
    assert requests["CONTROLLER_GET_REPLICA_INFO", "success"] == 1
    latencies = values(found, "request_latency_microseconds_count", "request_type")
    assert latencies["CONTROLLER_ELECT_MASTER",] == 2
    commits = values(found, "dledger_op_total", "dledger_operation", "dLedger_operation_status")
    assert commits.keys() == {("append", "success")}
    assert values(found, "dledger_disk_usage_bytes")[()] > 0
    assert values(found, "orbitmq_controller_groups") == {(): 1}
    assert values(found, "orbitmq_controller_groups_without_master") == {(): 0}


async def test_a_group_whose_master_is_lost_is_counted() -> None:
    async with QuietController(**OWN) as server:
        await server.join(1)
        await server.elect(1)
        server.controller.liveness.scan(10**9, 10**9)
        found = {one.name: series for one, series in (await server.controller.metrics.collect()).families()}
    assert list(found["orbitmq_controller_groups_without_master"].values()) == [1]
    assert "active_broker_num" not in found


def test_other_exporters_are_refused() -> None:
    with pytest.raises(ConfigError, match="metricsExporterType=LOG"):
        ControllerConfig(metrics_exporter_type="LOG")
