"""Apache's broker, tools and client work with our name server as with their own."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.fastjson import loads
from peers.apache import ApacheBroker, mqadmin
from peers.frames import GET_BROKER_CLUSTER_INFO, ask
from peers.ports import free_port, is_listening
from peers.process import PeerProcess
from peers.reader import ApacheReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GET_ROUTEINFO_BY_TOPIC = 105
TOPIC_NOT_EXIST = 17
TOPIC = "TopicOfTheTools"
NEVER = 1_000_000_000
PATIENCE = 60


@pytest.fixture(scope="module")
def nameserver(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our name server as a process of its own. It does not look for silent brokers, only at connections."""
    home = tmp_path_factory.mktemp("our-nameserver")
    address = f"127.0.0.1:{free_port()}"
    conf = home / "namesrv.conf"
    conf.write_text(
        f"listenPort={address.partition(':')[2]}\nbindAddress=127.0.0.1\n"
        f"kvConfigPath={home}/kvConfig.json\nscanNotActiveBrokerInterval={NEVER}\n"
    )
    process = PeerProcess(
        "OrbitMQ name server",
        [sys.executable, "-m", "orbitmq", "nameserver", "-c", str(conf)],
        home=home,
        environment={},
    )
    process.wait_until(lambda: is_listening(address), what="listening", seconds=PATIENCE)
    try:
        yield address
        process.stop(seconds=PATIENCE)
    finally:
        process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apache")


@pytest.fixture(scope="module")
def broker(nameserver: str, folder: Path) -> Iterator[ApacheBroker]:
    """Apache's broker, registered with our name server and with a topic that was created through it."""
    sizes = {"mappedFileSizeCommitLog": str(1 << 20), "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
    with ApacheBroker(folder / "store", sizes, home=folder / "broker", nameserver=nameserver) as running:
        said = mqadmin("updateTopic", "-n", nameserver, "-c", "DefaultCluster", "-t", TOPIC, "-r", "3", "-w", "2")
        assert "success" in said
        yield running


def test_the_tools_list_the_cluster(broker: ApacheBroker, nameserver: str) -> None:
    said = mqadmin("clusterList", "-n", nameserver)
    assert re.search(rf"DefaultCluster\s+{broker.name}\s+0\s+{broker.address}", said), said


def test_the_tools_list_the_topic(broker: ApacheBroker, nameserver: str) -> None:
    topics = mqadmin("topicList", "-n", nameserver).split()
    assert TOPIC in topics
    assert {"TBW102", "SELF_TEST_TOPIC", "DefaultCluster", broker.name} <= set(topics)


def test_the_tools_show_the_route_of_the_topic(broker: ApacheBroker, nameserver: str) -> None:
    said = mqadmin("topicRoute", "-n", nameserver, "-t", TOPIC)
    route = loads(said[said.index("{") : said.rindex("}") + 1])
    assert route["brokerDatas"][0]["brokerAddrs"] == {0: broker.address}
    (queues,) = route["queueDatas"]
    assert (queues["brokerName"], queues["readQueueNums"], queues["writeQueueNums"]) == (broker.name, 3, 2)


def test_a_message_finds_its_way(broker: ApacheBroker, nameserver: str, folder: Path) -> None:
    said = mqadmin("sendMessage", "-n", nameserver, "-t", TOPIC, "-p", "through us", "-k", "TheKey")
    assert "SEND_OK" in said
    with ApacheReader(home=folder / "reader", nameserver=nameserver) as reader:
        (message,) = reader.messages(TOPIC)
        assert message.properties["KEYS"] == "TheKey"
        assert message.store_host == broker.address
        assert len(reader.queues(TOPIC)) == 3


# The last one: it takes the broker away.


def test_a_killed_broker_is_gone_from_the_route_at_once(broker: ApacheBroker, nameserver: str) -> None:
    found = ask(nameserver, GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    assert loads(found.body)["brokerDatas"][0]["brokerAddrs"] == {0: broker.address}
    broker.kill()
    answer = found
    for _ in range(1000):
        answer = ask(nameserver, GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        if answer.code != 0:
            break
    assert answer.code == TOPIC_NOT_EXIST
    assert b'"brokerAddrTable":{}' in ask(nameserver, GET_BROKER_CLUSTER_INFO).body
