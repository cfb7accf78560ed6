"""Health, events, bundles and definitions through the operator's client, on a running cluster."""

from __future__ import annotations

import asyncio
import io
import tarfile
from typing import TYPE_CHECKING

import orjson
import pytest

from orbitmq import Message
from orbitmq.admin import AdminClient, InvalidRequestError, NotFoundError
from orbitmq.admin.definitions.model import parse
from orbitmq.admin.group.model import GroupSettings
from orbitmq.admin.health.bundle import archive, collect
from orbitmq.admin.health.model import Severity, Thresholds
from orbitmq.admin.topic.model import TopicSettings
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage

QUIET = Thresholds(disk_warning=0, disk_critical=0)
"""The disk of the machine that runs the tests is its own affair."""


async def test_a_healthy_cluster_has_no_findings(admin: AdminClient, orders: list[str]) -> None:
    report = await admin.health.check(thresholds=QUIET)
    assert report.findings == ()
    assert (report.severity, report.brokers) == (Severity.OK, 2)


async def test_a_full_disk_and_lag_are_found_with_reasons(admin: AdminClient, orders: list[str]) -> None:
    await admin.groups.create("billing")
    route = await admin.topics.route("orders")
    for data in route.broker_datas:
        await admin.offsets.reset_at(data.broker_addrs[0], "billing", "orders", timestamp_ms=0)
    limits = Thresholds(disk_warning=0.000001, disk_critical=0, lag_warning=1, lag_critical=6)
    report = await admin.health.check(thresholds=limits)
    found = {(one.check, one.subject.split(" ")[0]): one for one in report.findings}
    assert report.severity is Severity.CRITICAL
    assert found["lag", "billing"].text == "6 messages are not consumed, and no member is connected"
    assert {"broker-a", "broker-b"} <= {name for check, name in found if check == "disk"}
    only = await admin.health.check(thresholds=limits, only=["disk"])
    assert {one.check for one in only.findings} == {"disk"}
    assert only.severity is Severity.WARNING


async def test_members_that_subscribe_differently_are_critical(pair: LocalCluster, admin: AdminClient) -> None:
    await admin.topics.create("orders", TopicSettings(read_queues=2, write_queues=2))
    seen: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    first, second = (pair.consumer("billing", instance_name=name) for name in ("first", "second"))
    first.on("orders", tags="A")(seen.put)
    second.on("orders", tags="B")(seen.put)
    async with first, second:
        report = await admin.health.check(thresholds=QUIET)
        while not report.findings:
            # The second member may not have sent its heartbeat.
            report = await admin.health.check(thresholds=QUIET)
    assert [(one.check, one.subject) for one in report.findings] == [("subscription", "billing")]


async def test_settings_that_differ_between_brokers_are_found(admin: AdminClient) -> None:
    await admin.topics.create("orders")
    await admin.topics.alter("orders", TopicSettings(perm=4), broker="broker-b")
    report = await admin.health.check(thresholds=QUIET)
    assert [(one.check, one.subject) for one in report.findings] == [("topic", "orders")]


async def test_a_master_that_is_gone_is_critical() -> None:
    async with LocalCluster(brokers=1) as cluster, AdminClient(cluster.name_server) as admin:
        await cluster.stop("broker-a")
        report = await admin.health.check(thresholds=QUIET)
        assert report.severity is Severity.CRITICAL
        assert report.findings[0].check in {"master", "broker"}


async def test_events_of_all_brokers_are_merged(admin: AdminClient, pair: LocalCluster) -> None:
    await admin.topics.create("orders")
    found = await admin.events.read(kinds=["topic-create"])
    assert {(one.broker_name, one.subject) for one in found if one.subject == "orders"} == {
        ("broker-a", "orders"),
        ("broker-b", "orders"),
    }
    assert [one.timestamp_ms for one in found] == sorted(one.timestamp_ms for one in found)
    last = {one.address: one.sequence for one in await admin.events.read()}
    assert await admin.events.read(after=last, kinds=["TOPIC_CREATE"]) == []
    assert len(await admin.events.read(limit=1)) == 1
    with pytest.raises(InvalidRequestError, match="TOPIC_CREATE"):
        await admin.events.read(kinds=["nonsense"])


async def test_a_bundle_has_the_state_and_no_secrets() -> None:
    settings = {"metricsGrpcExporterHeader": "authorization:abcdef"}
    async with LocalCluster(settings=settings) as cluster, AdminClient(cluster.name_server) as admin:
        await admin.topics.create("orders")
        await admin.groups.create("billing")
        async with cluster.producer(group="shop") as producer:
            await producer.send(Message("orders", "a body"))
        files = await collect(admin)
    with tarfile.open(fileobj=io.BytesIO(archive(files, folder="bundle", modified_ms=0))) as tar:
        names = set(tar.getnames())
    assert {"bundle/topics.json", "bundle/brokers/broker-a-0/settings.json", "bundle/health.json"} <= names
    content = {file.name: file.content for file in files}
    assert not any(b"a body" in found or b"abcdef" in found for found in content.values())
    assert orjson.loads(content["brokers/broker-a-0/settings.json"])["metricsGrpcExporterHeader"] == "(left out)"
    assert "orders" in {one["name"] for one in orjson.loads(content["topics.json"])}
    assert orjson.loads(content["groups/billing.json"]) == {"online": False}


async def test_definitions_go_to_another_cluster(admin: AdminClient) -> None:
    await admin.topics.create("orders", TopicSettings(read_queues=3, write_queues=3, order=True))
    await admin.topics.create("payments", TopicSettings(attributes={"message.type": "FIFO"}), broker="broker-a")
    await admin.groups.create("billing", GroupSettings(retry_max_times=7))
    file = parse(orjson.dumps((await admin.definitions.export(with_settings=True)).to_json()))
    assert {one.name: sorted(one.at) for one in file.topics} == {"orders": [], "payments": ["broker-a"]}
    assert (await admin.definitions.apply(file)).changes == ()
    async with LocalCluster(brokers=1) as other, AdminClient(other.name_server) as there:
        planned = await there.definitions.apply(file, dry_run=True)
        assert await there.topics.all() == []
        applied = await there.definitions.apply(file)
        assert applied.changes == planned.changes != ()
        assert (await there.definitions.apply(file)).changes == ()
        (orders, payments) = await there.topics.all()
        assert (orders.write_queues, payments.message_type) == (3, "FIFO")
        (billing,) = await there.groups.all()
        assert billing.placements[0].config.retry_max_times == 7
        await there.topics.create("own")
        assert (await there.definitions.apply(file, dry_run=True)).only_in_cluster == ("topic own",)


async def test_definitions_are_checked_before_anything_changes(admin: AdminClient) -> None:
    await admin.topics.create("payments", broker="broker-b")
    file = await admin.definitions.export()
    async with LocalCluster(brokers=1) as other, AdminClient(other.name_server) as there:
        with pytest.raises(NotFoundError, match="payments belongs to broker-b"):
            await there.definitions.apply(file)
    for data, reason in (
        (b"[", "not JSON"),
        (b"{}", "format"),
        (b'{"format": "orbitmq-definitions/1", "topics": [{}]}', "no name"),
        (b'{"format": "orbitmq-definitions/1", "topics": {}}', "list"),
        (b'{"format": "orbitmq-definitions/1", "queues": {}}', "queues"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            parse(data)
    for entry, reason in (
        ({"name": "bad topic!", "settings": {}}, "bad topic!"),
        ({"name": "orders", "settings": {"readQueueNums": -1}}, "out of range"),
        ({"name": "orders", "settings": {"readQueueNums": "many"}}, "orders is invalid"),
    ):
        good = {"name": "good", "settings": {}}
        wrong = {"format": "orbitmq-definitions/1", "topics": [good, entry]}
        with pytest.raises(InvalidRequestError, match=reason):
            await admin.definitions.apply(parse(orjson.dumps(wrong)))
    assert "good" not in await admin.topics.names()
