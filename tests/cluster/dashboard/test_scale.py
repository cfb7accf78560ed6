"""A large cluster: lists of topics, groups and brokers answer within two seconds, other pages stay usable."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from orbitmq.admin import AdminClient
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.testing import LocalCluster
from support.dashboard.rest_client import rest

if TYPE_CHECKING:
    from pathlib import Path

IS_LONG = bool(os.environ.get("ORBITMQ_LONG"))
BROKERS, TOPICS, GROUPS = (20, 2000, 3000) if IS_LONG else (3, 200, 300)
QUEUES = 4
SECONDS = 2.0
CALM = {"waitTimeMillsInSendQueue": "60000", "osPageCacheBusyTimeOutMills": "60000"}


async def _fill(cluster: LocalCluster) -> None:
    """Each topic on all brokers; each group has committed offsets of one topic on all brokers."""
    topics = [f"topic-{number:04}" for number in range(TOPICS)]
    groups = [f"group-{number:04}" for number in range(GROUPS)]
    async with AdminClient(cluster.name_server, timeout=60) as admin:
        await admin.topics.create_many([TopicConfig(name, QUEUES, QUEUES) for name in topics])
        await admin.groups.create_many([SubscriptionGroupConfig(name) for name in groups])
        names = [one.broker.broker_name for one in await admin.brokers.all()]
    for name in names:
        offsets = cluster.broker(name).offsets
        for number, group in enumerate(groups):
            for queue_id in range(QUEUES):
                offsets.commit(group, topics[number % TOPICS], queue_id, 0)


@pytest.mark.timeout(600 if IS_LONG else 60)
async def test_lists_of_a_large_cluster_answer_at_once(tmp_path: Path) -> None:
    async with LocalCluster(brokers=BROKERS, settings=CALM) as cluster:
        await _fill(cluster)
        async with rest(cluster.name_server, tmp_path, login=False, history_mib=0) as console:
            base = "/api/v1/clusters/demo"
            begun = time.monotonic()
            assert (await console.client.get(f"{base}/groups")).status_code == 200
            took = {"first": time.monotonic() - begun}
            for path in (
                "topics",
                "topics?search=topic-01&sort=name&descending=true",
                "groups?sort=lag&descending=true&size=500",
                "groups?search=group-02",
                "brokers",
                "overview",
                "topics/topic-0001",
                "groups/group-0001",
            ):
                begun = time.monotonic()
                answer = await console.client.get(f"{base}/{path}")
                took[path] = time.monotonic() - begun
                assert answer.status_code == 200, answer.text
            listed = (await console.client.get(f"{base}/groups")).json()
    assert listed["total"] >= GROUPS
    for path, seconds in took.items():
        is_list = path.split("?")[0] in {"groups", "topics", "brokers"}
        # The very first list connects to all brokers, and then their lag is read for the first time: until that
        # is done, other pages are slower and stay usable.
        assert seconds < (SECONDS if is_list else SECONDS * 5), took
