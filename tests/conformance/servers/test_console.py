"""The console's REST interface on Apache's broker and on ours: the same requests have the same answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from conformance.servers.processes import serving
from peers.apache import available
from support.dashboard.rest_client import Rest, rest

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

SETTINGS = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "enablePropertyFilter": "true",
}
BASE = "/api/v1/clusters/demo"
HEADERS = {"x-csrf-token": "local"}
TIMES = {
    *("born_timestamp", "store_timestamp", "last_update_ms", "message_id", "offset_message_id", "store_host"),
    *(
        "born_host",
        "address",
        "addresses",
        "put_tps",
        "get_tps",
        "consume_tps",
        "last_timestamp_ms",
        "properties",
        # A message goes to a random queue.
        "queue_offset",
    ),
}


async def _ask(client: httpx.AsyncClient, method: str, path: str, body: object = None) -> Any:
    answer = await client.request(method, f"{BASE}{path}", json=body, headers=HEADERS, timeout=60)
    return answer.status_code, _steady(answer.json())


def _steady(value: Any) -> Any:
    """An answer without times, ids, addresses and rates."""
    if isinstance(value, dict):
        return {key: _steady(part) for key, part in value.items() if key not in TIMES and key != "message"}
    if isinstance(value, str):
        return re.sub(r"127\.0\.0\.1:\d+", "HOST", value)
    return [_steady(part) for part in value] if isinstance(value, list) else value


REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("GET", "/topics/orders", None),
    ("POST", "/topics?dry_run=true", {"name": "orders", "read_queues": 2, "write_queues": 2}),
    ("POST", "/topics", {"name": "orders", "read_queues": 2, "write_queues": 2}),
    ("PATCH", "/topics/orders", {"read_queues": 3}),
    ("GET", "/topics?search=orders", None),
    ("POST", "/topics/orders/messages", {"body": "one", "tags": "A", "keys": ["k1"], "properties": {"a": "5"}}),
    ("POST", "/topics/orders/messages", {"body": "two", "tags": "B", "keys": ["k2"], "properties": {"a": "1"}}),
    ("POST", "/groups", {"name": "billing", "retry_max_times": 3}),
    ("PATCH", "/groups/billing", {"retry_max_times": 5}),
    ("GET", "/groups?search=billing", None),
    ("POST", "/groups/billing/offsets?dry_run=true", {"topic": "orders", "earliest": True}),
    ("POST", "/groups/none/offsets", {"topic": "none", "earliest": True}),
    ("GET", "/brokers/unknown/settings", None),
    ("PATCH", "/brokers/broker-a/settings?dry_run=true", {"values": {"maxMessageSize": "1000000"}}),
    ("PATCH", "/brokers/broker-a/settings", {"values": {"maxMessageSize": "1000000"}}),
    ("GET", "/name-servers", None),
    ("GET", "/dead-letters", None),
    ("DELETE", "/groups/billing", None),
    ("DELETE", "/topics/none", None),
)


async def _answers(home: Path, *, apache: bool) -> list[tuple[str, Any]]:
    """The answers to all requests, in order, and to searches for what was sent."""
    with serving(home, SETTINGS, apache=apache) as server:
        async with rest(server.nameserver, home, login=False) as api:
            found = [
                (f"{method} {path}", await _ask(api.client, method, path, body)) for method, path, body in REQUESTS
            ]
            for name, query in (
                ("newest", "limit=10"),
                ("tag", "tags=A"),
                ("sql", "sql=a>3"),
            ):
                status, messages = await _ask(api.client, "GET", f"/topics/orders/messages?{query}")
                found.append((name, (status, sorted(one["body"] for one in messages))))
            found.append(("key", await _found_by_key(api.client)))
            overview = (await api.client.get(f"{BASE}/overview")).json()
            found.append(("overview", (overview["brokers_up"], overview["topics"], overview["puts_today"])))
            deferred = (await api.client.get(f"{BASE}/deferred")).json()
            found.append(("deferred", [(one["broker_name"], one["timed"]) for one in deferred]))
            found.append(("waiting", await _waiting(api)))
            found.append(("open", await _ask(api.client, "GET", "/transactions/messages")))
            settings = (await api.client.get(f"{BASE}/brokers/broker-a/settings")).json()
            found.append(("changed", settings["maxMessageSize"]))
            return found


async def _found_by_key(client: httpx.AsyncClient) -> Any:
    """The message with a key; a broker writes its index behind the answer to the send."""
    for _ in range(200):
        found = await _ask(client, "GET", "/topics/orders/messages/by-key/k1")
        if found[1]:
            break
    status, messages = found
    return status, [(one["body"], one["tags"], one["keys"]) for one in messages]


async def _waiting(api: Rest) -> Any:
    """A message of the next hour and one of a delay level, as the console lists them."""
    path = "/topics/orders/messages"
    sent = [
        await _ask(api.client, "POST", path, {"body": "later", "keys": [key], **delay})
        for key, delay in (("hour", {"delay_seconds": 3600}), ("soon", {"delay_seconds": 1800}))
    ]
    for _ in range(200):
        status, found = await _ask(api.client, "GET", "/deferred/messages")
        if len(found["messages"]) == 2:
            break
        # The broker writes its queues behind the answer to the send.
        api.console.clusters.first.changed()
    minutes = [round((one["due_ms"] - one["stored_ms"]) / 60_000) for one in found["messages"]]
    return [status for status, _ in sent], status, [one["keys"] for one in found["messages"]], minutes


async def test_the_same_requests_have_the_same_answers(tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    apaches = await _answers(tmp_path / "apache", apache=True)
    ours = await _answers(tmp_path / "ours", apache=False)
    for (name, theirs), (_, own) in zip(apaches, ours, strict=True):
        assert own == theirs, name
    assert dict(ours)["newest"] == (200, ["one", "two"])
    assert dict(ours)["sql"] == (200, ["one"])
