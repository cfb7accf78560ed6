"""Brokers, clusters and name servers through the operator's client, and its blocking face."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.admin import AdminClient, NotFoundError, SyncAdminClient, UnsupportedError
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.testing import LocalCluster


async def test_clusters_and_brokers_are_listed_with_their_figures(admin: AdminClient, pair: LocalCluster) -> None:
    (cluster,) = await admin.clusters.all()
    assert (cluster.name, cluster.masters, cluster.slaves) == ("DefaultCluster", 2, 0)
    (described,) = await admin.clusters.describe("DefaultCluster")
    assert [one.broker.broker_name for one in described.brokers] == ["broker-a", "broker-b"]
    runtime = described.brokers[0].runtime
    assert runtime is not None
    assert runtime.version == "V5_5_0"
    assert runtime.is_active
    assert 0 <= runtime.disk_ratio <= 1
    with pytest.raises(NotFoundError, match="DefaultCluster"):
        await admin.clusters.describe("other")


async def test_a_broker_that_is_down_is_listed_with_the_reason(admin: AdminClient, pair: LocalCluster) -> None:
    await pair.kill("broker-b")
    statuses = {one.broker.broker_name: one for one in await admin.brokers.all()}
    if "broker-b" in statuses:  # the name server may have dropped it with its connection
        assert statuses["broker-b"].runtime is None
        assert statuses["broker-b"].reason
    assert statuses["broker-a"].runtime is not None


async def test_settings_of_brokers_are_read_and_altered(admin: AdminClient) -> None:
    assert (await admin.brokers.settings("broker-a"))["brokerName"] == "broker-a"
    wanted = {"traceTopicEnable": "true"}
    planned = await admin.brokers.alter_settings(wanted, broker="broker-a", dry_run=True)
    assert [(one.field, one.before, one.after) for one in planned] == [("traceTopicEnable", "false", "true")]
    await admin.brokers.alter_settings(wanted, cluster="DefaultCluster")
    assert [(await admin.brokers.settings(name))["traceTopicEnable"] for name in ("broker-a", "broker-b")] == [
        "true",
        "true",
    ]


async def test_write_permission_is_wiped_and_added(admin: AdminClient, orders: list[str]) -> None:
    wiped = await admin.brokers.wipe_write_permission("broker-a")
    assert all(wiped.values())
    route = await admin.topics.route("orders")
    assert {data.broker_name: data.perm for data in route.queue_datas} == {"broker-a": 4, "broker-b": 6}
    await admin.brokers.add_write_permission("broker-a")
    assert {data.perm for data in (await admin.topics.route("orders")).queue_datas} == {6}


async def test_maintenance_reaches_all_masters(admin: AdminClient, pair: LocalCluster) -> None:
    both = [pair.address("broker-a"), pair.address("broker-b")]
    assert await admin.brokers.clean_expired_queues() == both
    assert await admin.brokers.clean_unused_topics(broker="broker-a") == both[:1]
    assert await admin.brokers.delete_expired_log() == both


async def test_name_servers_keep_tables_and_settings(admin: AdminClient, pair: LocalCluster) -> None:
    (server,) = await admin.name_servers.all()
    assert (server.address, server.is_reachable) == (pair.name_server, True)
    assert await admin.name_servers.get("space", "key") is None
    assert await admin.name_servers.table("space") == {}
    await admin.name_servers.put("space", "key", "value")
    assert await admin.name_servers.table("space") == {"key": "value"}
    await admin.name_servers.delete("space", "key")
    assert await admin.name_servers.get("space", "key") is None
    assert "listenPort" in await admin.name_servers.settings()


async def test_what_a_broker_does_not_have_is_reported_as_such(admin: AdminClient) -> None:
    with pytest.raises(UnsupportedError):
        await admin.services.roll_back_pop_records()


async def test_two_thousand_topics_and_three_thousand_groups_take_a_few_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with LocalCluster() as cluster, AdminClient(cluster.name_server, timeout=60) as admin:
        await admin.topics.create_many([TopicConfig(f"topic-{number}", 1, 1) for number in range(2000)])
        await admin.groups.create_many([SubscriptionGroupConfig(f"group-{number}") for number in range(3000)])
        requests = 0
        exchange = admin.session.exchange

        async def count(*args: Any, **options: Any) -> Any:
            nonlocal requests
            requests += 1
            return await exchange(*args, **options)

        monkeypatch.setattr(admin.session, "exchange", count)
        assert len(await admin.topics.names()) == 2000
        assert requests == 2
        assert len(await admin.topics.all()) == 2000
        assert len(await admin.groups.all(with_lag=True)) == 3000
        # One for the topology each, and pages of 2,000.
        assert requests <= 10


def test_plain_code_has_the_same_subjects() -> None:
    with LocalCluster() as cluster, SyncAdminClient(cluster.name_server) as admin:
        admin.topics.create("orders")
        assert admin.do(lambda client: client.topics.names()) == ["orders"]
        assert [one.name for one in admin.topics.all()] == ["orders"]
        assert list(admin.messages.read("orders")) == []
        with pytest.raises(AttributeError):
            admin.nothing  # noqa: B018
        with pytest.raises(NotFoundError):
            admin.topics.describe("nowhere")
