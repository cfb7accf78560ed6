"""The loads of real clients in ``python -m bench suite``: nothing fails, and what was sent is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.suite.real_clients import CLIENTS, RealClient

from conformance.servers.processes import serving
from peers.agent import Outgoing
from peers.frames import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conformance.servers.processes import Serving

UPDATE_AND_CREATE_TOPIC = 17
ALL_SENT = 0, "SEND_OK"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.key)
def test_a_client_sends_for_some_time_and_counts_what_is_there(
    client: RealClient, server: Serving, tmp_path: Path
) -> None:
    if reason := client.unavailable():
        pytest.skip(reason)
    topic = f"Load_{client.key}"
    wanted = {"topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    wanted |= {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "order": "false"}
    assert ask(server.broker_address, UPDATE_AND_CREATE_TOPIC, wanted).code == 0
    with client.start(home=tmp_path, nameserver=server.nameserver) as agent:
        producer = agent.producer("producer")
        assert agent.send(producer, [Outgoing(topic=topic, body=b"first")])[0].status in ALL_SENT
        sent = agent.send_for(producer, topic, size=128, workers=2, seconds=0.2)
        # Threads of the C++ client do not wait for a route that another one is looking up.
        assert sent.failures == 0 or "No route info" in sent.failure
        assert sent.messages > 0
        counted = agent.counted(agent.counter("counter", topic, group=f"{topic}_group"), sent.messages + 1)
        assert counted.messages == sent.messages + 1
