"""The REST interface against a running cluster: its figures are those of ``orbitmq.admin``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from orbitmq.admin import AdminClient
from orbitmq.dashboard.auth import passwords
from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.config import PipelineTarget
from orbitmq.dashboard.subjects.messages import hex_dump, json_text
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.pipelines.archive.directory import Archive, Segment
from support.dashboard.demo_cluster import MARKUP, MESSAGES
from support.dashboard.rest_client import rest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from support.dashboard.demo_cluster import DemoCluster

BASE = "/api/v1/clusters/demo"


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "N", 2)


@pytest.fixture
async def client(demo: DemoCluster, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with rest(demo.name_server, tmp_path) as api:
        yield await api.sign_in(Role.ADMIN)


@pytest.fixture
async def admin(demo: DemoCluster) -> AsyncIterator[AdminClient]:
    async with AdminClient(demo.name_server) as client:
        yield client


async def _get(client: httpx.AsyncClient, path: str, **parameters: Any) -> Any:
    answer = await client.get(f"{BASE}{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_overview_counts_what_admin_counts(client: httpx.AsyncClient, admin: AdminClient) -> None:
    found = await _get(client, "/overview")
    assert (found["brokers"], found["brokers_up"], found["problems"]) == (2, 2, [])
    assert found["topics"] == len(await admin.topics.all())
    assert found["groups"] == len(await admin.groups.all())
    brokers = await _get(client, "/brokers")
    statuses = await admin.brokers.all()
    assert [one["broker"]["address"] for one in brokers] == [one.broker.address for one in statuses]
    runtime = await _get(client, "/brokers/broker-a/runtime")
    assert runtime.keys() == (await admin.brokers.runtime("broker-a")).table.keys()


async def test_topics_and_groups_are_those_of_admin(client: httpx.AsyncClient, admin: AdminClient) -> None:
    topic = await _get(client, "/topics/orders")
    described = await admin.topics.describe("orders")
    assert topic["messages"] == described.messages >= MESSAGES
    assert [(one["broker_name"], one["queue_id"], one["max_offset"]) for one in topic["queues"]] == [
        (one.broker_name, one.queue_id, one.max_offset) for one in described.queues
    ]
    assert topic["groups"] == ["billing"]
    group = await _get(client, "/groups/billing")
    assert len(group["connections"]["members"]) == 2
    assert group["check"]["agree"]
    assert group["lag"]["lag"] == (await admin.lag.of_group("billing")).lag
    member = group["connections"]["members"][0]["client_id"]
    info = await _get(client, f"/groups/billing/members/{quote(member)}", stacks="true")
    assert info["mqTable"]
    listed = await _get(client, "/groups", search="REF", sort="lag")
    assert [one["name"] for one in listed["rows"]] == ["refunds"]
    assert (await _get(client, "/topics", size=1, page=2, kind="all"))["total"] > 2


async def test_a_topic_is_created_altered_filled_and_deleted(client: httpx.AsyncClient) -> None:
    new = {"name": "fresh", "read_queues": 1, "write_queues": 1, "attributes": {"message.type": "FIFO"}}
    planned = await client.post(f"{BASE}/topics?dry_run=true", json=new)
    assert {one["target"] for one in planned.json()} == {"topic fresh at broker-a", "topic fresh at broker-b"}
    assert (await client.get(f"{BASE}/topics/fresh")).status_code == 404
    assert (await client.post(f"{BASE}/topics", json=new)).status_code == 201
    assert (await _get(client, "/topics", search="fresh"))["rows"][0]["message_type"] == "FIFO"
    changed = await client.patch(f"{BASE}/topics/fresh", json={"read_queues": 3})
    assert [(one["before"], one["after"]) for one in changed.json()] == [(1, 3), (1, 3)]
    sent = await client.post(
        f"{BASE}/topics/fresh/messages", json={"body": "hello", "keys": ["k1"], "sharding_key": "s"}
    )
    assert sent.status_code == 201, sent.text
    assert [one["body"] for one in await _get(client, "/topics/fresh/messages/by-key/k1")] == ["hello"]
    assert (await client.delete(f"{BASE}/topics/fresh")).status_code == 200
    assert (await client.delete(f"{BASE}/topics/fresh")).status_code == 404
    bad = await client.post(f"{BASE}/topics", json={"name": "no blanks", "read_queues": 1, "write_queues": 1})
    assert (bad.status_code, bad.json()["error"]) == (400, "invalid_request")
    actions = [one["action"] for one in (await client.get("/api/v1/audit")).json()["rows"]]
    assert {"create topic", "alter topic", "delete topic", "send message"} <= set(actions)


async def test_a_group_is_created_reset_and_deleted(client: httpx.AsyncClient) -> None:
    created = await client.post(f"{BASE}/groups", json={"name": "reader", "retry_max_times": 3})
    assert created.status_code == 201, created.text
    plan = await client.post(f"{BASE}/groups/reader/offsets?dry_run=true", json={"topic": "orders", "latest": True})
    assert {one["before"] for one in plan.json()} == {None}
    done = await client.post(f"{BASE}/groups/reader/offsets", json={"topic": "orders", "earliest": True})
    assert {one["after"] for one in done.json()} == {0}
    lag = (await _get(client, "/groups/reader"))["lag"]["lag"]
    assert lag >= MESSAGES
    both = await client.post(
        f"{BASE}/groups/reader/offsets", json={"topic": "orders", "earliest": True, "latest": True}
    )
    assert both.status_code == 400
    altered = await client.patch(f"{BASE}/groups/reader", json={"retry_max_times": 5})
    assert {one["after"] for one in altered.json()} == {5}
    assert (await client.delete(f"{BASE}/groups/reader")).status_code == 200
    assert (await client.get(f"{BASE}/groups/reader")).status_code == 404


async def test_messages_are_found_in_every_way(client: httpx.AsyncClient, demo: DemoCluster) -> None:
    by_id = await _get(client, f"/topics/orders/messages/{demo.message_id}")
    assert json.loads(by_id["body"]) == {"order": 0, "amount": 0}
    same = await _get(client, f"/topics/orders/messages/{by_id['offset_message_id']}")
    assert same == by_id
    place = f"{by_id['broker_name']}/{by_id['queue_id']}/{by_id['queue_offset']}"
    assert await _get(client, f"/topics/orders/queues/{place}") == by_id
    newest = await _get(client, "/topics/orders/messages", limit=500)
    assert len(newest) >= MESSAGES + 2
    assert [one["store_timestamp"] for one in newest] == sorted(
        (one["store_timestamp"] for one in newest), reverse=True
    )
    tagged = await _get(client, "/topics/orders/messages", tags="A", limit=500)
    assert {one["tags"] for one in tagged} == {"A"}
    assert len(tagged) == MESSAGES // 2
    later = by_id["store_timestamp"] + 86_400_000
    assert await _get(client, "/topics/orders/messages", begin_ms=later) == []
    markup = (await _get(client, "/topics/orders/messages/by-key/markup"))[0]
    assert (markup["body"], markup["tags"], markup["properties"]["note"]) == (MARKUP, MARKUP, MARKUP)
    binary = (await _get(client, "/topics/orders/messages/by-key/binary"))[0]
    assert (binary["body_encoding"], binary["body_size"]) == ("base64", 256)


async def test_bodies_are_decoded_by_the_schema_of_their_topic(demo: DemoCluster, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    (tmp_path / "point.avsc").write_text(json.dumps(schema))
    rules = tmp_path / "decoders.toml"
    rules.write_text('[[decoder]]\ntopics = ["payments"]\nformat = "avro"\nschema = "point.avsc"\n')
    async with rest(demo.name_server, tmp_path, decoders=str(rules)) as api:
        client = await api.sign_in(Role.ADMIN)
        sent = await client.post(f"{BASE}/topics/payments/messages", json={"body": "\u0002", "keys": ["point"]})
        path = f"/topics/payments/messages/{sent.json()['message_id']}/decoded"
        found = await _get(client, path)
        assert (found["format"], json.loads(found["text"]), found["error"]) == ("avro Point", {"x": 1}, "")
        assert (await client.get(f"{BASE}/topics/orders/messages/{demo.message_id}/decoded")).status_code == 404


async def test_a_message_is_tracked_traced_and_sent_again_after_editing(
    client: httpx.AsyncClient, demo: DemoCluster
) -> None:
    path = f"/topics/orders/messages/{demo.message_id}"
    # The group commits its offsets every few seconds.
    while await _get(client, f"{path}/groups") != [{"group": "billing", "track": "CONSUMED", "reason": ""}]:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    trace = await _get(client, f"/messages/{demo.message_id}/trace")
    assert trace["published"][0]["group"] == "shop"
    sent = await client.post(f"{BASE}{path}/resend", json={"topic": "payments", "body": "edited", "keys": "again"})
    assert sent.status_code == 201, sent.text
    copy = (await _get(client, "/topics/payments/messages/by-key/again"))[0]
    assert (copy["body"], copy["tags"]) == ("edited", "A")


async def test_dead_letters_are_listed_exported_and_sent_again(client: httpx.AsyncClient) -> None:
    listed = {one["group"]: one["messages"] for one in await _get(client, "/dead-letters")}
    assert listed["refunds"] >= 1
    letters = await _get(client, "/dead-letters/refunds")
    assert "refused" in {one["body"] for one in letters}
    kinds = await _get(client, "/dead-letters/refunds/kinds")
    assert {one["origin"] for one in kinds} == {"payments"}
    assert await _get(client, "/dead-letters/refunds", tag="none") == []
    assert (await client.get(f"{BASE}/dead-letters/refunds/export", params={"origin": "orders"})).text == ""
    exported = await client.get(f"{BASE}/dead-letters/refunds/export")
    assert "refused" in {json.loads(line)["body"] for line in exported.text.splitlines()}
    assert "attachment" in exported.headers["content-disposition"]
    planned = await client.post(f"{BASE}/dead-letters/refunds/resend?dry_run=true", json={"topic": "orders"})
    assert {one["message_id"] for one in planned.json()} == {""}
    done = await client.post(f"{BASE}/dead-letters/refunds/resend", json={"topic": "orders", "limit": 1})
    assert [one["error"] for one in done.json()] == [""]
    assert (await client.get(f"{BASE}/dead-letters/idle")).status_code == 404


async def test_dead_letters_are_sent_again_by_a_job(client: httpx.AsyncClient) -> None:
    path = f"{BASE}/dead-letters/refunds/resend-job"
    begun = await client.post(path, json={"topic": "orders", "limit": 1})
    assert (begun.status_code, begun.json()["total"]) == (202, 1)
    number = begun.json()["number"]

    async def state() -> dict[str, Any]:
        (found,) = [one for one in (await client.get("/api/v1/jobs")).json() if one["number"] == number]
        return dict(found)

    while (job := await state())["state"] == "running":  # noqa: ASYNC110 - as a script does
        await asyncio.sleep(0.02)
    assert (job["state"], job["done"], job["failed"], job["target"]) == ("done", 1, 0, "refunds")
    assert (await client.delete(f"/api/v1/jobs/{number}")).json()["state"] == "done"
    assert (await client.delete("/api/v1/jobs/99")).status_code == 404


async def test_deferred_messages_clients_and_events_are_listed(client: httpx.AsyncClient) -> None:
    deferred = await _get(client, "/deferred")
    assert sum(one["timed"] for one in deferred) >= 1
    assert await _get(client, "/transactions") is not None
    assert await _get(client, "/transactions/messages") == []
    waiting = await _get(client, "/deferred/messages")
    assert "payments" in {one["topic"] for one in waiting["messages"]}
    assert waiting["is_complete"]
    producers = await _get(client, "/producers")
    assert producers["shop"][0]["language"] == "PYTHON"
    events = await _get(client, "/events", kinds="consumer_join")
    assert "billing" in {one["subject"] for one in events}
    assert (await client.get(f"{BASE}/events", params={"kinds": "PARTY"})).status_code == 400


async def test_pipelines_are_listed_with_what_is_left(demo: DemoCluster, tmp_path: Path) -> None:
    archive = Archive(str(tmp_path / "archive"))
    archive.make()
    archive.add(Segment(1, {MessageQueue("orders", "broker-a", 0): (0, 3)}, ()))
    targets = (PipelineTarget("kept", archive.path, "demo"), PipelineTarget("gone", str(tmp_path), "demo"))
    async with rest(demo.name_server, tmp_path, pipelines=targets) as api:
        client = await api.sign_in(Role.VIEWER)
        kept, gone = await _get(client, "/pipelines")
        messages = (await _get(client, "/topics/orders"))["messages"]
    assert (kept["kind"], kept["run_count"], kept["topics"][0]["done"]) == ("archive", 1, 3)
    assert kept["left"] == messages - 3
    assert "neither an archive" in gone["problem"]


async def test_settings_of_servers_are_changed_with_a_difference(client: httpx.AsyncClient) -> None:
    path = f"{BASE}/brokers/broker-b/settings"
    change = {"values": {"maxMessageSize": "4194305"}}
    planned = await client.patch(f"{path}?dry_run=true", json=change)
    assert [(one["field"], one["after"]) for one in planned.json()] == [("maxMessageSize", "4194305")]
    assert (await client.patch(path, json=change)).status_code == 200
    assert (await _get(client, "/brokers/broker-b/settings"))["maxMessageSize"] == "4194305"
    assert (await _get(client, "/name-servers"))[0]["is_reachable"]
    assert await _get(client, "/name-servers/settings")


async def test_every_operation_is_described(client: httpx.AsyncClient) -> None:
    description = (await client.get("/api/v1/openapi.json")).json()
    operations = [one for methods in description["paths"].values() for one in methods.values()]
    assert len(operations) > 40
    assert all(one.get("summary") for one in operations)
    assert all(path.startswith("/api/v1/") for path in description["paths"])


async def test_an_unknown_cluster_topic_or_argument_is_one_sentence(client: httpx.AsyncClient) -> None:
    for path, status in (
        ("/api/v1/clusters/other/topics", 404),
        (f"{BASE}/topics/none", 404),
        (f"{BASE}/topics?size=10000", 400),
        (f"{BASE}/topics?sort=color", 400),
        (f"{BASE}/nothing", 404),
    ):
        answer = await client.get(path)
        assert answer.status_code == status, path
        assert set(answer.json()) == {"error", "message"}


def test_bodies_are_readable_as_json_and_hex() -> None:
    assert json_text(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert json_text(b"[" * 100_000) is None
    assert hex_dump(b"ab\x00").split() == ["00000000", "61", "62", "00", "ab."]
